"""English stop words. A query drops them unless it has no other words.

Only queries drop them, so the list may change without touching any index. Without it, a document that shares only "how
do I" with a query would be ranked, and rank fusion would count that; and each such word makes SQLite read most of the
index.
"""

_WORDS = """
    a about an and any are as at be been being but by can could did do does doing done for from get had has have having
    he her hers him his how i if in into is it its just me my no nor not of on or our ours shall she should so some such
    than that the their theirs them then there these they this those to too us very was we were what when where which
    who whom whose why will with would you your yours
"""
STOPWORDS = frozenset(_WORDS.split())
