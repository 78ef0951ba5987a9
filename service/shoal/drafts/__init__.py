"""A draft of a policy from a sample of records: read it, describe each field, guess, ask, write.

1. `reading` sniffs the form of a file and reads its first rows.
2. `fields` says what the values of a field are, and `names` what its name says.
3. `guesses` derives role, scale and keys; `draft` adds the person and the settings.
4. `questions` asks what is open, and `writing` writes the policy.
"""

from shoal.drafts.draft import EVERY_RECORD, Draft
from shoal.drafts.questions import ask
from shoal.drafts.reading import read_sample
from shoal.drafts.writing import kafka_section, write_draft

__all__ = ["EVERY_RECORD", "Draft", "ask", "kafka_section", "read_sample", "write_draft"]
