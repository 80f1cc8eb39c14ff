"""A gitlint rule: a commit that changes many lines must say why."""

from gitlint.git import GitCommit
from gitlint.options import IntOption
from gitlint.rules import CommitRule, RuleViolation


class LargeChangeNeedsBody(CommitRule):
    """Require a body from commits that change more than `lines` lines, 50 unless set."""

    name = "large-change-needs-body"
    id = "UC1"
    options_spec = [IntOption("lines", 50, "Maximum number of changed lines without a body")]  # noqa: RUF012 - gitlint's interface

    def validate(self, commit: GitCommit) -> list[RuleViolation]:
        files = commit.changed_files_stats.values()  # None for a binary file
        changed = sum((file.additions or 0) + (file.deletions or 0) for file in files)
        if changed <= self.options["lines"].value or any(line.strip() for line in commit.message.body):
            return []
        return [RuleViolation(self.id, f"a change of {changed} lines needs a body that says why", line_nr=3)]
