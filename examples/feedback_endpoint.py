"""An HTTP endpoint for thumbs: validated, idempotent, one vote per voter. Run it with `uvicorn feedback_endpoint:app`."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import FastAPI, HTTPException, Path
from pydantic import BaseModel, ConfigDict, Field

from langchain_memoryworth.errors import InvalidInputError, UnknownRunError
from langchain_memoryworth.service.unembedded import UnembeddedStore

app = FastAPI()
store = UnembeddedStore(os.environ.get("MEMORYWORTH_DATABASE", "sqlite:///memories.db"))


class Thumb(BaseModel):
    """What a person says of an answer; in production the voter comes from the session, not from the body."""

    model_config = ConfigDict(extra="forbid", strict=True)
    good: bool
    voter: Annotated[str, Field(min_length=1, max_length=200)]


@app.put("/runs/{run_id}/thumb")
def thumb(run_id: Annotated[str, Path(max_length=200)], said: Thumb) -> dict[str, bool]:
    """PUT, as saying it twice is saying it once; another answer of the same voter replaces the first."""
    try:
        return {"new": store.record_outcome(run_id, said.good, source_id=said.voter)}
    except UnknownRunError as error:
        raise HTTPException(404, "no such run") from error
    except InvalidInputError as error:
        raise HTTPException(422, "this cannot be recorded") from error
