"""The API's errors, all as ``application/problem+json`` (RFC 9457), or on OpenAI's routes in OpenAI's format."""

from __future__ import annotations

from api_gateway.problems.database import TAKES_NO_WRITES, UNREACHABLE, no_database, takes_no_writes, trouble_of
from api_gateway.problems.documents import (
    CODES,
    MEDIA_TYPE,
    MOST_PROBLEMS,
    NO_RETRY,
    FieldProblem,
    OpenAIErrorDocument,
    Problem,
    ProblemDocument,
    field_problems,
    invalid,
    invalid_at,
)
from api_gateway.problems.handlers import cut_short, forbid_retry, install_problem_handlers

__all__ = [
    "CODES",
    "MEDIA_TYPE",
    "MOST_PROBLEMS",
    "NO_RETRY",
    "TAKES_NO_WRITES",
    "UNREACHABLE",
    "FieldProblem",
    "OpenAIErrorDocument",
    "Problem",
    "ProblemDocument",
    "cut_short",
    "field_problems",
    "forbid_retry",
    "install_problem_handlers",
    "invalid",
    "invalid_at",
    "no_database",
    "takes_no_writes",
    "trouble_of",
]
