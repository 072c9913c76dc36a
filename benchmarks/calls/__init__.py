"""The same ten tasks with plait and with other embedded libraries: lines of code, and which calls exist."""
