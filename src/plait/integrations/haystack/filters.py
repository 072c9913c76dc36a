"""Haystack's filters to plait's, with errors that are Haystack's as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack.errors import FilterError as HaystackFilterError

from plait.errors import FilterError
from plait.integrations.filters.haystack import filter_text


class UnsupportedFilterError(HaystackFilterError, FilterError):
    """A filter is invalid, or compares what plait cannot compare."""


def haystack_filter(filters: Mapping[str, Any] | None) -> str | None:
    """The plait filter of Haystack's filters; None for no filters."""
    try:
        return filter_text(filters)
    except FilterError as error:
        raise UnsupportedFilterError(str(error)) from error
