"""The docstrings of Python's standard library as documents: a collection that every machine has."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

from plait.records import Document

# Modules whose import has no side effects, in the order of the library's manual. Modules that this Python does not have
# are skipped. Packages come before their submodules, so that a name gets its shortest path.
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
    """One document for each public module, class, function and method with a docstring.

    The id is the full name, the title the name with its parameters, the text the docstring; metadata has the module
    and the kind. A docstring that occurs several times, inherited or under another name, gives one document.
    """
    seen: set[str] = set()
    for name in MODULES:
        module = _imported(name)
        if module is None:
            continue
        for full_name, thing, kind in _objects(name, module):
            text = _docstring(thing)
            if text not in seen and len(text.split()) >= MIN_WORDS:
                seen.add(text)
                yield Document(full_name, text, full_name + _parameters(thing), {"module": name, "kind": kind})


def _imported(name: str) -> types.ModuleType | None:
    if name.split(".")[0] not in sys.stdlib_module_names:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some modules are deprecated
            return importlib.import_module(name)
    except Exception:  # a module that does not support this system may raise anything
        return None


def _objects(name: str, module: types.ModuleType) -> Iterator[tuple[str, Any, str]]:
    """(full name, object, kind) of a module. Functions come before methods: many modules offer the methods of one
    object as functions, and people use those."""
    prefix = "" if name == "builtins" else f"{name}."
    public = _public(module)
    classes = [(short_name, thing) for short_name, thing in public if inspect.isclass(thing)]
    yield name, module, "module"
    for short_name, thing in public:
        if not inspect.isclass(thing) and callable(thing) and hasattr(thing, "__name__"):
            yield prefix + short_name, thing, "function"
    for short_name, thing in classes:
        yield prefix + short_name, thing, "class"
    for short_name, thing in classes:
        for method_name, method in _methods(thing):
            yield f"{prefix}{short_name}.{method_name}", method, "method"


def _public(module: types.ModuleType) -> list[tuple[str, Any]]:
    """The public names of a module, sorted."""
    listed = getattr(module, "__all__", None)
    names = sorted(vars(module) if listed is None else listed)
    offered = [(name, getattr(module, name, None)) for name in names if name[0] != "_"]
    return [(name, thing) for name, thing in offered if listed is not None or _lives_in(thing, module)]


def _lives_in(thing: Any, module: types.ModuleType) -> bool:
    """Whether a thing is defined in the module or in its C counterpart, not only imported there."""
    home = getattr(thing, "__module__", None) or ""
    return home.lstrip("_").split(".")[0] == module.__name__.split(".")[0] or module.__name__ in ("os.path", "builtins")


def _methods(cls: type) -> list[tuple[str, Any]]:
    """The public methods and properties that the class defines itself."""
    methods = []
    for name in sorted(vars(cls)):
        member = inspect.getattr_static(cls, name)
        if isinstance(member, classmethod | staticmethod):
            member = member.__func__
        if name[0] != "_" and (callable(member) or isinstance(member, property | types.GetSetDescriptorType)):
            methods.append((name, member))
    return methods


def _docstring(thing: Any) -> str:
    text = getattr(thing, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def _parameters(thing: Any) -> str:
    """The parameter names in parentheses, without defaults and annotations."""
    if not callable(thing):
        return ""
    try:
        names = [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]
    except (ValueError, TypeError, AttributeError):  # many C functions have no signature
        return "()"
    more = ", ..." if len(names) > MAX_PARAMETERS else ""
    return f"({', '.join(names[:MAX_PARAMETERS])}{more})"
