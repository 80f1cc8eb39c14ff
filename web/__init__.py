"""The page: what a store holds, looked at in a browser."""
