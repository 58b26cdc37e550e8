"""What Git says: the candidate, the base, and whether the tracked tree is HEAD.

The candidate is HEAD and nothing else. Object ids are whatever Git returns; no length
or form of theirs is assumed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .diagnostics import Faults, Found, fault, require
from .manifest import Manifest, parse
from .registry import graph, rows, states

# A hook or a wrapper may have set these for another repository.
AMBIENT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")


@dataclass(frozen=True)
class Repository:
    """The working tree at `root`, whose HEAD is the candidate."""

    root: Path
    candidate: str

    @classmethod
    def at(cls, root: Path) -> Repository:
        """The repository whose top is the root; a fault if it is none."""
        top = _git(root, "rev-parse", "--show-toplevel")
        head = _git(root, "rev-parse", "HEAD")
        if None in (top, head) or Path(_line(top)).resolve() != root.resolve():
            message = f"`{root}` is not the top of a Git working tree with a commit."
            raise Faults([fault("E_REPOSITORY", message, root=str(root))])
        return cls(root, _line(head))

    def commit(self, revision: str) -> str:
        """The object id of the commit that a revision names; an ancestor of HEAD."""
        found = _git(self.root, "rev-parse", "--verify", f"{revision}^{{commit}}")
        if found is None:
            message = f"The base revision {revision!r} names no commit."
            raise Faults([fault("E_BASE_UNRESOLVED", message, revision=revision)])
        base = _line(found)
        if _git(self.root, "merge-base", "--is-ancestor", base, "HEAD") is None:
            message = f"The base {base} is no ancestor of the candidate."
            told = {"base_commit": base, "candidate_commit": self.candidate}
            raise Faults([fault("E_BASE_NOT_ANCESTOR", message, **told)])
        return base

    def clean(self) -> Found:
        """Tracked files that differ from HEAD; untracked ones never matter."""
        status = _git(self.root, "status", "--porcelain", "-z", "--untracked-files=no")
        if status is None:
            message = "Git cannot tell whether the tracked tree is clean."
            yield fault("E_REPOSITORY", message, root=str(self.root))
        elif entries := [
            *(entry[3:] for entry in status.split("\0") if entry[2:3] == " "),
            *self._unwatched(),
        ]:
            message = f"Tracked files differ from HEAD: {', '.join(sorted(entries))}."
            yield fault("E_TREE_DIRTY", message, paths=sorted(entries))

    def _unwatched(self) -> list[str]:
        """Tracked files that Git was told not to look at (`git update-index
        --assume-unchanged`, `--skip-worktree`), so that it cannot vouch for them."""
        files = (_git(self.root, "ls-files", "-v", "-z") or "").split("\0")
        return [f[2:] for f in files if f[:1].islower() or f[:1] == "S"]

    def tracked(self) -> set[str]:
        """All paths that Git tracks, and the folders above them."""
        files = (_git(self.root, "ls-files", "-z") or "").split("\0")
        above = {str(parent) for file in files for parent in Path(file).parents}
        return {*files, *above}

    def untracked(self, subjects: Iterable[tuple[str, str]]) -> Found:
        """Files that decide something and that the candidate does not hold."""
        tracked = self.tracked()
        for subject, path in subjects:
            target = (self.root / path).resolve().relative_to(self.root.resolve())
            if not {path, str(target)} <= tracked:
                message = f"`{path}` of `{subject}` is not tracked."
                yield fault("E_UNTRACKED", message, subject=subject, path=path)

    def manifest_of(self, base: str, name: str) -> Manifest:
        """The manifest of the base commit, valid by itself."""
        told = {"base_commit": base, "manifest": name}
        text = _git(self.root, "cat-file", "blob", f"{base}:{name}")
        if text is None:
            message = f"The commit {base} has no `{name}` to compare with."
            raise Faults([fault("E_BASE_MANIFEST_MISSING", message, **told)])
        try:
            manifest = parse(text, name)
            require(graph(manifest))
            require(rows(manifest), states(manifest))
        except Faults as faults:
            codes = ", ".join(each.code for each in faults.diagnostics)
            message = f"`{name}` of the commit {base} is not valid: {codes}."
            raise Faults([fault("E_BASE_MANIFEST_INVALID", message, **told)]) from None
        return manifest


def _git(root: Path, *arguments: str) -> str | None:
    """What Git prints, or None when it refuses or is not there."""
    environment = {k: v for k, v in os.environ.items() if k not in AMBIENT}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout.decode("utf-8", "surrogateescape")


def _line(output: str | None) -> str:
    return (output or "").removesuffix("\n")
