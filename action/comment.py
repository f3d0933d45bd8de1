"""Show the report in the job's summary, and in one comment of the pull request where the token may write.

The comment is found again by a hidden marker with the name of this use of the action, and updated. Nothing here fails
the job: where nothing may be written (a fork's token, no pull request), the job's summary is all.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

MOST = 65_536  # letters of a comment
MOST_PAGES = 50  # of 100 comments
SECONDS = 30
MAY_NOT = (401, 403, 404)


def main() -> None:
    """Write the summary, then the comment."""
    shown = body()
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
        summary.write(shown)
    if os.environ["COMMENT"] != "true":
        return
    number = pull_request()
    if number is None:
        print("No pull request: the report is in the job's summary.")
        return
    try:
        print(f"The report is in {comment(number, shown)}.")
    except urllib.error.HTTPError as error:
        if error.code in MAY_NOT:
            print(f"The token may not comment here ({error.code}), as in forks: the report is in the job's summary.")
            print("Elsewhere give the job 'permissions: pull-requests: write'.")
        else:
            print(f"::warning title=traceviz::No comment was written: GitHub answered {error.code}.")
    except (OSError, ValueError) as error:
        print(f"::warning title=traceviz::No comment was written: {str(error)[:200]!r}.")


def body() -> str:
    """The report's summary with links to its files; where there is no report, why."""
    folder = os.environ["REPORT"]
    server, repository, run = (os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    this_run = f"[this run]({server}/{repository}/actions/runs/{run})"
    if not folder:
        log = Path(os.environ["LOG"])
        said = log.read_text(encoding="utf-8", errors="replace").strip()[-2000:] if log.is_file() else ""
        fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", said)), 3)
        return f"### ⚠️ No report\n\n{fence}text\n{said}\n{fence}\n\nOf {this_run}.\n"
    url = os.environ["ARTIFACT_URL"]
    links = f"**[Download the report and its pictures]({url})** of {this_run}.\n" if url else f"Of {this_run}.\n"
    text = (Path(folder) / "summary.md").read_text(encoding="utf-8")
    seen, fold, rest = text.partition("<details>")
    whole = f"{seen}{links}\n{fold}{rest}"
    return whole if len(whole) + len(marker()) < MOST else f"{seen}{links}"


def marker() -> str:
    """What the comment begins with, and nobody sees."""
    return f"<!-- traceviz {re.sub(r'[^A-Za-z0-9_. -]|--+', '_', os.environ['NAME'])} -->\n"


def pull_request() -> int | None:
    """The pull request's number, by the event that the job runs for."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    except (KeyError, OSError, ValueError):
        return None
    if "pull_request" in event:
        return int(event["pull_request"]["number"])
    if "pull_request" in (issue := event.get("issue") or {}):
        return int(issue["number"])
    requests = (event.get("workflow_run") or {}).get("pull_requests") or []
    return int(requests[0]["number"]) if requests else None


def comment(number: int, shown: str) -> str:
    """Update this use's comment, or write it; returns its address."""
    content = {"body": marker() + shown}
    issues = f"repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    for page in range(1, MOST_PAGES + 1):
        comments = asked("GET", f"{issues}/{number}/comments?per_page=100&page={page}")
        for one in comments:
            if str(one.get("body") or "").replace("\r\n", "\n").startswith(marker()):
                return str(asked("PATCH", f"{issues}/comments/{one['id']}", content)["html_url"])
        if len(comments) < 100:
            break
    return str(asked("POST", f"{issues}/{number}/comments", content)["html_url"])


def asked(method: str, path: str, content: dict[str, Any] | None = None) -> Any:
    """GitHub's answer."""
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    request = urllib.request.Request(
        f"{api}/{path}",
        data=None if content is None else json.dumps(content).encode(),
        method=method,
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Content-Type": "application/json",
            "User-Agent": "traceviz",
        },
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
