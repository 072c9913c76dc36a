"""Makes an index equal to folders: adds, changes and removes the documents of their files, and nothing else.

A file is compared by size and time first, and by the digest of its content if these differ. A file that moved keeps its
embeddings. The index stores which file each document came from, so what other sources added is not touched.
"""

from plait.folder_sync.plan import SyncPlan, make_plan
from plait.folder_sync.run import FileProgress, SyncReport, sync_folders

__all__ = ["FileProgress", "SyncPlan", "SyncReport", "make_plan", "sync_folders"]
