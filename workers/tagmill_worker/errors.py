"""What can go wrong in a worker, as one tree.

WorkerError
├── BadSettings          an option or a variable does not make sense: exit code 2
├── ServerError          what the API answered, or did not
│   ├── Unauthorized     401/403: the token is wrong or revoked; there is no point in going on
│   ├── WorkerGone       410: register again
│   ├── NotFound         404: the partition has gone
│   │   ├── UnknownSet       unknown_expression_set: the server does not know this version
│   │   ├── ImageMissing     image_missing: nobody has shared one
│   │   └── ImagesOff        images_off: the server keeps none
│   ├── Refused          another 4xx: the server understood and said no
│   └── Unavailable      no answer, half an answer, 429 or 5xx: try again later
│       └── ProtocolError    an answer that is not the protocol's, as a proxy's login page
│           └── AnswerTooLarge   more bytes than a worker takes
└── EvaluatorError       the child process
    ├── Unfinished       it stalled or died on a document or a page, and did so again
    ├── ImageRefused     a saved image that is not what it should be: it is made again
    └── EvaluatorBroken  it does not start at all
"""

from __future__ import annotations

from http import HTTPStatus


class WorkerError(Exception):
    """The base of all."""


class BadSettings(WorkerError):
    """The message names the option."""


class ServerError(WorkerError):
    """The API's answer, or the want of one."""


class Unauthorized(ServerError):
    """The token is wrong or revoked."""


class WorkerGone(ServerError):
    """The server does not know this worker any more."""


class NotFound(ServerError):
    """What was asked for is not there, or not for this token."""


class UnknownSet(NotFound):
    """The expression set was superseded a while ago."""


class ImageMissing(NotFound):
    """Nobody has shared an image of this kind."""


class ImagesOff(NotFound):
    """The server keeps no shared images."""


class Refused(ServerError):
    """A problem document's verdict. `code` is machine-readable, "" where there was none."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"the server refused ({status} {code or 'no code'}): {detail}")
        self.status = status
        self.code = code


class Unavailable(ServerError):
    """Try again, after `retry_after` seconds at the earliest where the server named a time.

    `status`: of the answer, where there was one."""

    def __init__(
        self, message: str, retry_after: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status

    @property
    def is_failure(self) -> bool:
        """Whether the request may be to blame, so that it must not be sent for ever. A proxy says
        502 or 504 of a server that a request has brought down, or kept too long."""
        status = self.status or 0
        return status >= HTTPStatus.INTERNAL_SERVER_ERROR and (
            status != HTTPStatus.SERVICE_UNAVAILABLE
        )


class ProtocolError(Unavailable):
    """The answer is not of this protocol. The call is tried again: a proxy in between may answer so
    while the server restarts."""


class AnswerTooLarge(ProtocolError):
    """More bytes than a worker takes. The message says how many."""


class EvaluatorError(WorkerError):
    """A page could not be evaluated, and no expression is to blame."""


class Unfinished(EvaluatorError):
    """The message names the partition and, where a document is the place, its slot."""

    def __init__(self, partition: int, slot: int | None, reason: str) -> None:
        place = "a page" if slot is None else f"the document in slot {slot}"
        super().__init__(f"{place} of partition {partition} could not be read: {reason}")
        self.slot = slot


class ImageRefused(EvaluatorError):
    """A saved image is damaged, foreign or of another version, or could not be written."""


class EvaluatorBroken(EvaluatorError):
    """The child process ended again and again before it was ready."""
