"""The documentation of Python's standard library, from its docstrings: something to search that everyone has."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

from plait.records import Document

# Modules that can be imported anywhere without an effect, grouped as the library's own manual groups them. What a
# Python lacks is passed over. Packages stand before their parts, so that a name is known by its shortest path.
_NAMES = """
builtins string re difflib textwrap unicodedata stringprep struct codecs datetime zoneinfo calendar collections
collections.abc heapq bisect array weakref types copy pprint reprlib enum graphlib numbers math cmath decimal
fractions random statistics itertools functools operator pathlib os os.path fileinput stat filecmp tempfile glob
fnmatch linecache shutil pickle copyreg shelve marshal dbm sqlite3 zlib gzip bz2 lzma zipfile tarfile csv configparser
tomllib netrc plistlib hashlib hmac secrets io time argparse getopt logging logging.config logging.handlers getpass
curses platform errno ctypes ctypes.util threading multiprocessing multiprocessing.pool multiprocessing.shared_memory
concurrent.futures subprocess sched queue contextvars asyncio socket ssl select selectors signal mmap email
email.message email.parser email.policy email.utils email.mime.text email.mime.multipart json json.tool mailbox
mimetypes base64 binascii quopri html html.parser html.entities xml.etree.ElementTree xml.dom.minidom xml.sax
xml.sax.saxutils webbrowser wsgiref.simple_server wsgiref.util urllib.request urllib.parse urllib.error
urllib.robotparser http http.client http.server http.cookies http.cookiejar ftplib poplib imaplib smtplib uuid
socketserver xmlrpc.client xmlrpc.server ipaddress wave colorsys gettext locale cmd shlex typing doctest unittest
unittest.mock bdb faulthandler pdb timeit trace tracemalloc sys sysconfig warnings dataclasses contextlib abc atexit
traceback gc inspect site code codeop zipimport pkgutil modulefinder runpy importlib importlib.abc importlib.machinery
importlib.metadata importlib.resources importlib.util ast symtable token keyword tokenize tabnanny pyclbr py_compile
compileall dis pickletools pwd grp termios tty pty fcntl resource syslog optparse
"""
MODULES = tuple(_NAMES.split())

MIN_WORDS = 4
MAX_PARAMETERS = 6


def stdlib_documents() -> Iterator[Document]:
    """A document for each public module, class, function and method that says something of its own.

    The id is the full name, the title the name with its parameters, the text the docstring; metadata has the module
    and the kind. Text that was inherited, or is known under an earlier name, comes once.
    """
    seen: set[str] = set()
    for name in MODULES:
        module = _imported(name)
        if module is None:
            continue
        for full_name, thing, kind in _things(name, module):
            text = _docstring(thing)
            if text not in seen and len(text.split()) >= MIN_WORDS:
                seen.add(text)
                yield Document(full_name, text, full_name + _parameters(thing), {"module": name, "kind": kind})


def _imported(name: str) -> types.ModuleType | None:
    if name.split(".")[0] not in sys.stdlib_module_names:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some modules announce their retirement
            return importlib.import_module(name)
    except Exception:  # a module that this system cannot support, in whatever way it says so
        return None


def _things(name: str, module: types.ModuleType) -> Iterator[tuple[str, Any, str]]:
    """Functions before methods: many modules offer the methods of one object as functions, which are what is used."""
    prefix = "" if name == "builtins" else f"{name}."
    public = _public(module)
    classes = [(own_name, thing) for own_name, thing in public if inspect.isclass(thing)]
    yield name, module, "module"
    for own_name, thing in public:
        if not inspect.isclass(thing) and callable(thing) and hasattr(thing, "__name__"):
            yield prefix + own_name, thing, "function"
    for own_name, thing in classes:
        yield prefix + own_name, thing, "class"
    for own_name, thing in classes:
        for method_name, method in _methods(thing):
            yield f"{prefix}{own_name}.{method_name}", method, "method"


def _public(module: types.ModuleType) -> list[tuple[str, Any]]:
    """What a module offers under its own name, sorted."""
    listed = getattr(module, "__all__", None)
    names = sorted(vars(module) if listed is None else listed)
    offered = [(name, getattr(module, name, None)) for name in names if name[0] != "_"]
    return [(name, thing) for name, thing in offered if listed is not None or _lives_in(thing, module)]


def _lives_in(thing: Any, module: types.ModuleType) -> bool:
    """Defined in the module, or in its twin written in C; else it was only imported there for use."""
    home = getattr(thing, "__module__", None) or ""
    return home.lstrip("_").split(".")[0] == module.__name__.split(".")[0] or module.__name__ in ("os.path", "builtins")


def _methods(cls: type) -> list[tuple[str, Any]]:
    """Public methods and properties that the class itself defines."""
    found = []
    for name in sorted(vars(cls)):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, classmethod | staticmethod):
            member = member.__func__
        if name[0] != "_" and (callable(member) or isinstance(member, property | types.GetSetDescriptorType)):
            found.append((name, member))
    return found


def _docstring(thing: Any) -> str:
    text = getattr(thing, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def _parameters(thing: Any) -> str:
    """The names in parentheses: defaults and annotations would only be noise in a title."""
    if not callable(thing):
        return ""
    try:
        names = [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]
    except (ValueError, TypeError, AttributeError):  # many functions written in C do not tell
        return "()"
    more = ", ..." if len(names) > MAX_PARAMETERS else ""
    return f"({', '.join(names[:MAX_PARAMETERS])}{more})"
