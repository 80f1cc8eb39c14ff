#!/usr/bin/env bash
# review.sh BASE OUTPUT PATHSPECS: writes what the changes since the commit BASE mean for devices, as Markdown; exits 1
# if a changed file is invalid. Nothing is written if no file has changed.
set -euo pipefail
base=$1 output=$2
read -ra pathspecs <<<"$3"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$output"
failed=0
# The base as it was when the branch began, so that changes that others have merged since then are not shown.
base=$(git merge-base "$base" HEAD)
while IFS= read -r -d '' file; do
    old=$work/old/$file new=$work/new/$file # the names decide what the files contain
    mkdir -p "$(dirname "$old")" "$(dirname "$new")"
    git show "$base:$file" >"$old" 2>/dev/null || : >"$old"
    git show "HEAD:$file" >"$new" 2>/dev/null || : >"$new"
    printf '### %s\n\n' "${file//[^A-Za-z0-9._\/ -]/?}" >>"$output"
    # An invalid file may have been there before; what counts is the new one.
    if ! hushmote experiment diff --markdown "$old" "$new" >"$work/out" 2>"$work/error"; then
        if [ -s "$new" ] && ! hushmote experiment diff --markdown /dev/null "$new" >"$work/out" 2>"$work/error"; then
            failed=1
            # Four spaces make it code, so that nothing in it acts as markup.
            sed "s#$work/new/##g; s/^/    /" "$work/error" >"$work/out"
        fi
    fi
    cat "$work/out" >>"$output"
    printf '\n' >>"$output"
done < <(git diff --name-only --no-renames -z "$base" HEAD -- "${pathspecs[@]}")
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$output" >>"$GITHUB_STEP_SUMMARY"
exit "$failed"
