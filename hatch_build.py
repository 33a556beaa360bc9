"""What the metadata take from the repository that builds a release: its address, and links of the README that lead there.

GitHub's runners say where they are (GITHUB_REPOSITORY); on any other machine there is no address, and none is made up.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {
    "Source": "",
    "Documentation": "/blob/{tag}/docs/index.md",
    "Changelog": "/blob/{tag}/CHANGELOG.md",
    "Issues": "/issues",
}


class FromRepository(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata):
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if name := os.environ.get("GITHUB_REPOSITORY"):
            address, tag = f"https://github.com/{name}", os.environ.get("GITHUB_REF_NAME", "main")
            metadata["urls"] = {what: address + page.format(tag=tag) for what, page in PAGES.items()}
            readme = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{address}/raw/{tag}/", readme)  # pictures, as files
            readme = re.sub(r"\]\((?!https?:|#)", rf"]({address}/blob/{tag}/", readme)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
