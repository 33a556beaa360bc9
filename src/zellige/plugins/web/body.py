"""The bodies of requests: strict JSON objects, with the fields of `models.decoding.Decoding` where samples are asked
for."""

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from zellige.base.errors import unknown
from zellige.base.requests import options_of
from zellige.models.decoding import WATCHED, Decoding
from zellige.samplers import every_option


class Body(BaseModel):
    """A JSON object: no other fields, no values of another type, no infinite numbers,
    no text that cannot be written."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _text(cls, body: Any) -> Any:
        """Refuse bytes, a body that was not sent as JSON; and half a character, `\\ud800`, which cannot be encoded."""
        if isinstance(body, bytes):
            raise PydanticCustomError("no_json", "the header content-type is not application/json")
        try:
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as problem:
            code = f"\\u{ord(problem.object[problem.start]):04x}"
            raise PydanticCustomError(
                "half_a_character", "a text holds {code}, which is half a character", {"code": code}
            ) from None
        return body


class Decoded(Body):
    """A request for samples."""

    options: dict[str, Any] = Field(default_factory=dict)

    def decoding(self) -> dict[str, Any]:
        """The fields of `Decoding` and the options of the sampler that are given;
        InputError where there is none of a name."""
        fields, names = {name: getattr(self, name) for name in WATCHED}, (*WATCHED, *every_option())
        for name in self.options:
            if name not in names:
                raise unknown("option", name, names)
        return {name: value for name, value in (fields | self.options).items() if value is not None}


DecodingBody = create_model(  # its fields are of the kinds of those of `Decoding`, which checks their ranges
    "DecodingBody",
    __base__=Decoded,
    **{name: (options_of(Decoding)[name].kind | None, None) for name in WATCHED},  # pyright: ignore[reportArgumentType, reportCallIssue]
)
