"""A party's table in partitions on disk, each of which another process of the party can open by itself."""

from colonnade.tables.spool.gathering import Gathered as Gathered, gather as gather
from colonnade.tables.spool.partitions import Spool as Spool
