"""The page: the contents of a store in a browser."""

import os

# NiceGUI would read and write files in the working folder, which may be a stranger's; the page writes none.
os.environ["NICEGUI_STORAGE_PATH"] = os.devnull
os.environ.pop("NICEGUI_REDIS_URL", None)
