"""What the name of a field says: English, German, French and Spanish words, and what they mean.

A name is split at signs, digits and changes of case. A short word counts if it is a part of the name, a long one also
inside a part, as in German compounds.
"""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from functools import cache
from itertools import pairwise


class Kind(StrEnum):
    """What a field holds, in the words of the comments of a draft."""

    PERSON = "the number of a person"
    NAME = "a name"
    CONTACT = "how to reach a person"
    ADDRESS = "an address"
    NUMBER = "a number of a document, an account, a vehicle or a device"
    WEB = "an address of the network"
    BIOMETRIC = "a picture or a measure of a body"
    ID = "an id"
    TEXT = "free text"
    BIRTH = "when a person was born"
    AGE = "an age"
    POSTCODE = "a postcode"
    DIAGNOSIS = "a state of health"
    MONEY = "what a person earns or owes"
    SENSITIVE = "a belief, an origin, a conviction or private life"
    CODE = "a category"
    TIME = "a time"


IDENTIFIERS = frozenset(
    {Kind.PERSON, Kind.NAME, Kind.CONTACT, Kind.ADDRESS, Kind.NUMBER, Kind.WEB, Kind.BIOMETRIC, Kind.ID, Kind.TEXT}
)
"""What is not published: HIPAA's identifiers, but for places and dates, and texts that may hold any of them."""
CONFIDENTIAL = frozenset({Kind.DIAGNOSIS, Kind.MONEY, Kind.SENSITIVE})

_WORDS = {
    Kind.CONTACT: """
        email mail phone telephone tel telefon handy mobile mobil fax telefax courriel telefono correo movil""",
    Kind.NUMBER: """
        ssn nhs nino nif nie dni nir svnr passport reisepass pasaporte passeport ausweis steuernummer steuerid insurance
        versichertennummer versicherungsnummer versnr kvnr policyno policynumber beneficiary member account iban bic
        konto kontonummer cuenta compte creditcard cardnumber licence license fuehrerschein certificate vin plate
        kennzeichen fahrgestellnummer matricula imei imsi iccid mac serial device seriennummer socialsecurity
        sozialversicherungsnummer securitesociale seguridadsocial
        versicherungsnr invoice rechnungsnummer""",
    Kind.WEB: "url uri ip ipaddress website homepage useragent cookie sessionid login username benutzername",
    Kind.BIOMETRIC: "photo picture image foto bild fingerprint voiceprint biometric fingerabdruck huella",
    Kind.ADDRESS: """
        address adresse anschrift direccion street strasse hausnummer rue calle domicile wohnadresse geocode gps""",
    Kind.PERSON: """
        patient patientid patid patno patientennummer mrn subject subjectid person personid personnr client customer
        kunde kundennummer kundennr user userid usernr participant proband probanden teilnehmer versicherter employee
        mitarbeiter personalnummer student matrikelnummer cliente paciente empleado usuario patientin assure individu
        caseid fallnummer aktenzeichen dossier expediente""",
    Kind.NAME: """
        name names fullname firstname lastname surname forename givenname familyname nachname vorname familienname nom
        prenom apellido apellidos nombre namen maidenname geburtsname alias nickname doctor
        physician arzt hausarzt medecin medico""",
    Kind.BIRTH: """
        birth dob birthdate birthday birthyear geburt geburtsdatum geburtstag geburtsjahr geb gebdat naissance
        nacimiento born""",
    Kind.AGE: "age alter edad lebensalter",
    Kind.POSTCODE: "zip zipcode postcode postal postalcode plz postleitzahl codepostal codigopostal",
    Kind.DIAGNOSIS: """
        diagnosis diagnose diagnoses diagnostic diagnostico icd disease krankheit maladie enfermedad hiv aids cancer
        krebs tumor tumour symptom symptoms befund condition comorbidity illness therapy therapie treatment behandlung
        medication medikament medikation drug drugs surgery outcome survived survival death allergy allergie disability
        behinderung pregnancy schwangerschaft abortion psychiatric depression smoke smoker smoking raucher alcohol
        alkohol health gesundheit pathology malignant relapse""",
    Kind.MONEY: """
        salary wage wages income gehalt lohn einkommen verdienst salaire revenu salario ingreso ingresos sueldo earnings
        debt schulden credit loan capitalgain capitalloss bonus pension""",
    Kind.SENSITIVE: """
        religion religious konfession faith vote voted wahl party partei political union gewerkschaft syndicat sexuality
        orientation affair affairs conviction criminal arrest crime vorstrafe""",
    Kind.TIME: "date time datetime timestamp datum zeit uhrzeit fecha hora heure at ts year jahr annee",
    Kind.CODE: """
        code type class group category region status kind sex gender geschlecht sexe sexo race ethnicity ward station
        abteilung department dept marital familienstand state bundesland country land pays pais center site origin""",
    Kind.TEXT: "comment comments note notes remark remarks kommentar bemerkung notiz freitext description beschreibung",
    Kind.ID: "id ids uuid guid nr no num number nummer numero key token hash seqno index row rowid pid uid",
}
_ORDER = (
    Kind.CONTACT,
    Kind.BIRTH,
    Kind.POSTCODE,
    Kind.NUMBER,
    Kind.WEB,
    Kind.BIOMETRIC,
    Kind.ADDRESS,
    Kind.TEXT,
    Kind.MONEY,
    Kind.DIAGNOSIS,
    Kind.SENSITIVE,
    Kind.AGE,
    Kind.NAME,
    Kind.PERSON,
    Kind.TIME,
    Kind.ID,
    Kind.CODE,
)
_INSIDE = 6
"""Letters from which a word also counts inside a part of a name."""
_THINGS = frozenset(
    (
        *_WORDS[Kind.CODE].split(),
        *["product", "item", "model", "brand", "language", "unit", "plan", "shop", "school", "type", "os", "browser"],
    )
)
"""With one of these words, a name or a number is that of a group or a thing."""
_NUMBERS = frozenset(["id", "ids", "nr", "no", "num", "number", "nummer", "key", "code", "hash", "uuid", "numero"])
_PRIVATE = frozenset({Kind.CONTACT, Kind.BIOMETRIC, Kind.TEXT, Kind.PERSON})
"""Kinds that are no group's, whatever other words the name has."""


@cache
def kind_of(name: str) -> Kind | None:
    """Return what a name says of its field; None if it says nothing.

    >>> [kind_of(name) for name in ("Geburtsdatum", "patientId", "patient_sex", "creatinine")]
    [<Kind.BIRTH: 'when a person was born'>, <Kind.PERSON: 'the number of a person'>, <Kind.CODE: 'a category'>, None]
    """
    parts = words_of(name)
    known = {*parts, *map("".join, pairwise(parts))}
    is_group = not _THINGS.isdisjoint(parts)
    for kind in _ORDER:
        if kind in IDENTIFIERS - _PRIVATE and is_group:
            continue
        found = [word for word in _WORDS[kind].split() if word in known or any(_is_inside(word, one) for one in parts)]
        if found and (kind is not Kind.PERSON or _is_number_of_person(parts)):
            return kind
    return None


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case and without accents.

    >>> words_of("dateNaissance"), words_of("PLZ Straße")
    (['date', 'naissance'], ['plz', 'strasse'])
    """
    german = unicodedata.normalize("NFC", name)
    for letter, two in (("ß", "ss"), ("ä", "ae"), ("ö", "oe"), ("ü", "ue"), ("Ä", "Ae"), ("Ö", "Oe"), ("Ü", "Ue")):
        german = german.replace(letter, two)
    plain = "".join(one for one in unicodedata.normalize("NFKD", german) if not unicodedata.combining(one))
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain).lower())


def _is_inside(word: str, part: str) -> bool:
    return len(word) >= _INSIDE and word in part


def _is_number_of_person(parts: list[str]) -> bool:
    """Return whether no word says that the field is another attribute of a person, as in patient weight."""
    people = _WORDS[Kind.PERSON].split()
    rest = [part for part in parts if part not in people and part not in _NUMBERS]
    return all(part.endswith(("id", "nr", "nummer", "number")) for part in rest)
