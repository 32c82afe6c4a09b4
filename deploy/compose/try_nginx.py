"""`nginx -t` on nginx.conf, with a certificate made for it and names that need no network."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        pair = ["-keyout", made / "tls.key", "-out", made / "tls.crt"]
        ask = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=check"]
        subprocess.run([*ask, *pair], check=True, capture_output=True)  # noqa: S603 - our own
        text = (HERE / "nginx.conf").read_text()
        for old, new in (
            ("/tmp/", f"{folder}/"),  # noqa: S108 - in the container
            ("/etc/nginx/tls", folder),
            ("/run/nginx.pid", f"{folder}/pid"),
            ("server api-1:", "server 127.0.0.1:"),
            ("server api-2:", "server 127.0.0.2:"),
            # Known from 1.25.1 on; the image has a newer one than most distributions.
            ("http2 on;", ""),
        ):
            text = text.replace(old, new)
        (made / "nginx.conf").write_text(text)
        command = ["nginx", "-t", "-q", "-c", made / "nginx.conf", "-e", made / "log"]
        return subprocess.run(command, check=False).returncode  # noqa: S603 - our own


if __name__ == "__main__":
    sys.exit(main())
