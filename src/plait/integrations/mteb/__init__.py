"""MTEB: plait as a search model and its models as encoders, and BEIR folders on disk as tasks.

    import mteb
    from plait.integrations.mteb import BeirFolderTask, PlaitSearch

    mteb.evaluate(PlaitSearch(mode="hybrid"), [BeirFolderTask("scifact")], cache=None)

`python -m plait.integrations.mteb FOLDER` measures a folder with MTEB's evaluator and with plait's.
"""

from plait.integrations.extras import missing_extra

try:
    from plait.integrations.mteb.encoders import PlaitCrossEncoder, PlaitEncoder
    from plait.integrations.mteb.search import PlaitSearch
    from plait.integrations.mteb.task import BeirFolderTask
except ModuleNotFoundError as error:
    raise missing_extra("mteb", error) from error

__all__ = ["BeirFolderTask", "PlaitCrossEncoder", "PlaitEncoder", "PlaitSearch"]
