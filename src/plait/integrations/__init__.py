"""plait inside frameworks: one module for each, imported by the user and installed as an extra.

    from plait.integrations.langchain import PlaitVectorStore  # pip install 'plait[langchain]'

All of them wrap an open `plait.Index` or open one by its path. The modules are langchain, llama_index, haystack, dspy,
mteb, pyterrier, arrow for DuckDB and data frames, and datasets for BEIR dictionaries, ir_datasets and ranx.
"""
