"""A party's table in partitions on disk, each of which another process of the party can open by itself."""

from colonnade.tables.partitioning.partitions import PartitionedTable as PartitionedTable
from colonnade.tables.partitioning.staging import StagedTable as StagedTable, stage_table as stage_table
