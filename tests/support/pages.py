"""Run the examples on pages in docs/."""

import doctest
import re


def run_examples(page, name, names):
    """Run a page's python blocks, compare its pycon blocks with their output, and return all languages."""
    blocks = re.findall(r"```(python|pycon)\n(.*?)```", page, re.DOTALL)
    for number, (language, text) in enumerate(blocks):
        if language == "python":
            exec(compile(text, f"docs/{name}", "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(text, names, f"block {number}", name, 0)
        output: list[str] = []
        runner = doctest.DocTestRunner()
        assert runner.run(example, out=output.append, clear_globs=False).failed == 0, "".join(output)
        names = example.globs
    return [language for language, _ in blocks]
