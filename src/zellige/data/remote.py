"""Check whether remote data is reachable: one short request, before a library that would try for half a minute.

Any answer of a host will do, a refusal too: what it means is for the library to say. A host that did not answer is not
asked again for a while, so that a list of things that lie there fails at once.
"""

import importlib.util
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ..base.errors import InputError

PATIENCE = 3.0  # seconds for an answer, with the look-up of the name
PAUSE = 30.0  # seconds in which a silent host is not asked again
_silent: dict[str, tuple[float, str]] = {}  # host -> (when it was asked, why it does not answer)


class Unreachable(InputError):
    """It is not on this machine, and where it lies does not answer. `reason` says why, in short."""

    def __init__(self, sentence: str, reason: str):
        super().__init__(sentence)
        self.reason = reason


def installed(library: str) -> bool:
    """Return whether a library that downloads can be imported."""
    if library in sys.modules:
        return sys.modules[library] is not None  # None: it is forbidden
    return importlib.util.find_spec(library) is not None


def silence(address: str) -> str:
    """Reason why the host of an address does not answer, in short; "" if it does."""
    host = urlsplit(address).netloc
    when, reason = _silent.get(host, (-PAUSE, ""))
    if not host or time.monotonic() - when < PAUSE:  # a file:// has no host
        return reason
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(address)), daemon=True)
    asking.start()  # a timeout of the socket does not bound the look-up of the name
    asking.join(PATIENCE)
    reason = answers[0] if answers else f"no answer within {PATIENCE:g} s"
    if reason:
        _silent[host] = (time.monotonic(), reason)
    return reason


def _ask(address: str) -> str:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PATIENCE):
            return ""
    except urllib.error.HTTPError:
        return ""
    except OSError as problem:
        reason = getattr(problem, "reason", None) or problem
        # a certificate that is not trusted here may be known to the library that fetches
        return "" if "CERTIFICATE_VERIFY_FAILED" in str(reason) else getattr(reason, "strerror", None) or str(reason)


@contextmanager
def hub_silence() -> Iterator[str]:
    """Reason why the Hugging Face hub does not answer, "" if it does.
    In this context its libraries use their cache alone."""
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    reason = "HF_HUB_OFFLINE is set" if offline else silence(constants.ENDPOINT)
    constants.HF_HUB_OFFLINE = bool(reason)
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = offline
