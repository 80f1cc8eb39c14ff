"""The page: what a store holds, looked at in a browser."""

import os

# NiceGUI would read and write in the working folder, which may be a stranger's; the page keeps nothing.
os.environ["NICEGUI_STORAGE_PATH"] = os.devnull
os.environ.pop("NICEGUI_REDIS_URL", None)
