"""Writes the rows of the archive's Iceberg table to a CSV file: read.py MYSQL-URI S3-ENDPOINT FILE

Timestamps are in microseconds. Keys of the object store are in AWS's variables.
"""

import os
import sys

import pyarrow as pa
import pyarrow.csv
from pyiceberg.catalog import load_catalog

uri, endpoint, file = sys.argv[1:]
catalog = load_catalog("kudos", **{
    "type": "sql", "uri": uri, "init_catalog_tables": "false", "s3.endpoint": endpoint,
    "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"], "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    "s3.region": os.environ["AWS_REGION"]})
table = catalog.load_table("kudos.changes")
rows = table.scan().to_arrow()
# What it plans by the bounds of files, and by their hours, must be the same rows.
some = table.scan(row_filter="region = 'DE' and written >= '1970-01-02T00:00:00+00:00'").to_arrow()
if some.num_rows != sum(region == "DE" for region in rows["region"].to_pylist()):
    sys.exit("a filter finds other rows")
for name, kind in {"written": pa.int64(), "minute": pa.int64(), "post_id": pa.string()}.items():
    rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(kind))
pa.csv.write_csv(rows, file, pa.csv.WriteOptions(quoting_style="none", include_header=False))
