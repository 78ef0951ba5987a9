"""What to say when no connection to a broker can be made: which setting does not fit, and the remedy."""

from __future__ import annotations

import ssl

from aiokafka import errors as kafka_errors

from shoal.errors import BrokerError, BrokerUnavailableError
from shoal.policy import KafkaSection

__all__ = ["TlsRefusedError", "unfit_setting"]

_HAS_EXPIRED = 10
"""Code of OpenSSL for a certificate that has expired."""


class TlsRefusedError(BrokerError):
    """One side of a TLS connection refuses the other: the first start ends, and a later one is tried again."""


def unfit_setting(error: BaseException, settings: KafkaSection, address: str) -> BrokerError | None:
    """Return the error to raise if a connection failed for its mechanism, protocol or certificates.

    Parameters
    ----------
    error : BaseException
        Of the client. Its text is not used.
    settings : KafkaSection
    address : str
        ``HOST:PORT`` of the broker.

    Returns
    -------
    BrokerError or None
        Retriable if the broker closed the connection: one that is just stopping does so, too. None for another error.
    """
    protocol = settings.security_protocol
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        mechanism = settings.sasl_mechanism or "PLAIN"
        return BrokerError(f"the broker at {address} does not take {mechanism}: set another kafka.sasl_mechanism")
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return BrokerError(
            f"the broker takes no SASL at {address}: check kafka.security_protocol, {protocol}, and the port"
        )
    if isinstance(error, ssl.SSLError):
        return TlsRefusedError(_about_tls(error))
    is_closed = isinstance(error, (kafka_errors.KafkaConnectionError, ConnectionError))
    if is_closed and not isinstance(error, ConnectionRefusedError):
        has_no_certificate = protocol == "SSL" and settings.ssl_certfile is None
        return BrokerUnavailableError(
            f"the broker closed the {'TLS ' if protocol.endswith('SSL') else ''}connection to {address}: check that "
            f"this port is one for kafka.security_protocol {protocol}"
            + (", and whether it requires a client certificate, kafka.ssl_certfile" if has_no_certificate else "")
        )
    return None


def _about_tls(error: ssl.SSLError) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return (
            "the broker refused the TLS connection: check kafka.security_protocol, the port, and the certificate of "
            "the client, kafka.ssl_certfile"
        )
    remedy = (
        "renew the certificate of the broker, or of the authority that signed it, and check this machine's clock"
        if error.verify_code == _HAS_EXPIRED
        else "check kafka.ssl_cafile, and that the certificate names the host in kafka.bootstrap_servers"
    )
    return f"the certificate of the broker is not trusted ({error.verify_message}): {remedy}"
