"""A Postgres for the ledger, without extensions: Debian's if it is installed, else the packaged one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.postgres import packaged_server

DEBIAN = Path("/usr/lib/postgresql/15/bin")
PGBOUNCER = "/usr/sbin/pgbouncer"
_PORT = 6432
_POOL = """\
[databases]
postgres = host={folder}
[pgbouncer]
listen_port = {port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
"""
_numbers = count()


class Server:
    """A Postgres of the tests' own, on a Unix socket only.

    Nothing reaches the disk before it has to (`fsync=off`): a process that is killed loses nothing by that, and no
    test pulls the plug.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data = folder / "data"
        self._as: list[str] = []
        packaged = (
            None if (DEBIAN / "initdb").exists() else packaged_server(self._data, start=False)
        )
        self._bin = DEBIAN if packaged is None else packaged.bin_path
        if os.getuid() == 0:  # Postgres refuses to run as root
            user = "postgres" if packaged is None else packaged.system_user
            shutil.chown(folder, user, user)
            self._as = ["runuser", "-u", user, "--"]
        folder.chmod(0o755)
        if packaged is None:
            options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
            self._run("initdb", "-D", self._data, *options)
        else:  # with these options, and it lets that user reach the programs, wherever they are installed
            packaged.ensure_pgdata_inited()

    @property
    def url(self) -> str:
        """Of its database, to be followed by `&name=value`."""
        return f"postgresql+psycopg://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "shared_buffers": "64MB",
            "max_connections": "200",
            "autovacuum": "off",
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        log = self.folder / "log"
        self._run("pg_ctl", "start", "-w", "-D", self._data, "-l", log, "-o", options)
        # Its end of the pipe closes however this process ends, so no server is left behind by tests that are killed.
        stop = self._command("pg_ctl", "stop", "-m", "immediate", "-w", "-D", self._data)
        self._guard = subprocess.Popen(
            ["sh", "-c", 'cat > /dev/null; exec "$@"', "sh", *stop],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Stop it as a crash would, without a word to its clients."""
        self._guard.communicate()
        assert self._guard.returncode == 0

    def _command(self, program: str, *arguments: object) -> list[str]:
        return [*self._as, str(self._bin / program), *map(str, arguments)]

    def _run(self, program: str, *arguments: object) -> None:
        command = self._command(program, *arguments)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)


class Pooled(Server):
    """The same behind a real PgBouncer, which gives each transaction to any of its connections."""

    @property
    def url(self) -> str:
        """Of the proxy."""
        return f"{super().url}&port={_PORT}"

    def start(self) -> None:
        """Start the server, and the proxy in front of it."""
        super().start()
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(_POOL.format(folder=self.folder, port=_PORT))
        (self.folder / "users").write_text('"postgres" ""\n')
        command = [*self._as, PGBOUNCER, "--quiet", str(settings)]
        self._proxy = subprocess.Popen(command, cwd=self.folder)
        while not (self.folder / f".s.PGSQL.{_PORT}").exists():
            assert self._proxy.poll() is None

    def stop(self) -> None:
        """Stop both."""
        self._proxy.terminate()
        self._proxy.wait()
        super().stop()


@contextmanager
def ledger_server() -> Iterator[Server]:
    """A server that lives as long as the block; `MEMORYWORTH_PGBOUNCER=1` puts a PgBouncer in front of it."""
    # Not below pytest's own folder: the path of a socket has no more than 107 characters.
    with TemporaryDirectory(prefix="mwl-") as folder:
        server = (Pooled if os.environ.get("MEMORYWORTH_PGBOUNCER") else Server)(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def new_schema(server: Server) -> str:
    """The URL of a place on the server where no store was yet."""
    return f"{server.url}&schema=t{next(_numbers)}"
