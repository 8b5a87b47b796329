"""How far an operation got with each wave as a whole; the first time counts."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from ledger.database import Database
from ledger.fencing import check_token, note_progress
from ledger.schema import wave_marks

_one = sa.select(wave_marks.c.at).where(
    wave_marks.c.operation == sa.bindparam("operation_id"),
    wave_marks.c.wave == sa.bindparam("wave_number"),
    wave_marks.c.mark == sa.bindparam("mark_name"),
)


class Waves:
    """Marks like "changed" (the bake time counts from it) and "judged"."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def mark(self, operation: str, token: int, wave: int, mark: str) -> None:
        """Set a mark unless it is set. Raises LeaseLost when another runner took over."""
        where = {"operation_id": operation, "wave_number": wave, "mark_name": mark}
        with self._db.write() as tx:
            plan = check_token(tx.connection, operation, token)
            if tx.connection.execute(_one, where).first() is None:
                row = {"operation": operation, "wave": wave, "mark": mark, "at": tx.now}
                tx.connection.execute(sa.insert(wave_marks), row)
                note_progress(tx.connection, operation)
                tx.record(f"{operation}#{token}", "wave.mark", operation, {"wave": wave, "mark": mark, "plan": plan})

    def marked(self, operation: str, wave: int, mark: str) -> datetime | None:
        """When the mark was set, None where it was not."""
        where = {"operation_id": operation, "wave_number": wave, "mark_name": mark}
        with self._db.read() as connection:
            return connection.execute(_one, where).scalar()

    def marks(self, operation: str, wave: int) -> dict[str, datetime]:
        """Every mark of the wave with its time, in the order of their times."""
        query = sa.select(wave_marks.c.mark, wave_marks.c.at).where(
            wave_marks.c.operation == operation, wave_marks.c.wave == wave
        )
        with self._db.read() as connection:
            return {row.mark: row.at for row in connection.execute(query.order_by(wave_marks.c.at))}
