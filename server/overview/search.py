"""Search experiments by their words, the same way in the command and on the page."""


def matches(search: str, *texts: str) -> bool:
    """Return whether each word of a search is part of one of the texts, ignoring case."""
    lower = [text.casefold() for text in texts]
    return all(any(word in text for text in lower) for word in search.casefold().split())
