"""The page, which shows a store's contents in a browser."""

import os

# NiceGUI would write files to the working folder, which someone else may own. The page writes no files.
os.environ["NICEGUI_STORAGE_PATH"] = os.devnull
os.environ.pop("NICEGUI_REDIS_URL", None)
