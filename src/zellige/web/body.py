"""The bodies of requests: strict JSON objects, with the fields of `models.sampling.Decoding` where samples are asked for."""

from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from ..models.sampling import DECODING, Decoding
from ..requests import options_of


class Body(BaseModel):
    """A JSON object: no other fields, no values of another type, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    def decoding(self) -> dict[str, Any]:
        """The fields of `Decoding` that are given."""
        values = {name: getattr(self, name) for name in DECODING}
        return {name: value for name, value in values.items() if value is not None}


DecodingBody = create_model(  # its fields are of the kinds of those of `Decoding`, which checks their ranges
    "DecodingBody",
    __base__=Body,
    **{name: (option.kind | None, None) for name, option in options_of(Decoding).items()},  # pyright: ignore[reportArgumentType, reportCallIssue]
)
