"""Filters: a small language for conditions on metadata, compiled to SQL.

    year >= 2020 and lang in ("en", "de") and not archived

Syntax:

- comparisons `= == != <> < <= > >=`, `in (...)`, `like "%x%"`, `is null`, each also with `not`;
- `"x" in tags`, for a field that is a list;
- a field alone, which is true if its value is `true`;
- `and`, `or`, `not` and parentheses; `not` binds tightest, then `and`, then `or`;
- strings in '...' or "..." with JSON escapes, numbers, `true`, `false`, `null`; a date is a string;
- fields by name, nested ones by path (`author.name`), names with other characters in backticks (`` `content type` ``).

`id`, `title` and `text` are the document's; a metadata field with such a name is written in backticks.

Meaning:

- Every condition is true or false, never unknown. `x = null` means `x is null`. Any other comparison with a field that
  is missing or null is false, so `not (x = 1)` is true for a document that has no `x`.
- `!=`, `not in` and `not like` are comparisons too: they are true if the field has another value, and false without a
  value.
- Values are compared only with values of the same type: `year > "2000"` is false for a year that is a number.
- In a `like` pattern, `%` matches any text and `_` one character; a backslash before them makes them literal. ASCII
  letters match in upper and lower case.
"""

from plait.filters.sql import Condition, compile_filter, register_functions

__all__ = ["Condition", "compile_filter", "register_functions"]
