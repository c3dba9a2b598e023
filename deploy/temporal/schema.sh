#!/bin/sh
# Makes Temporal's two databases and brings their schema to the version of this image. May be repeated: existing
# databases are kept, and only missing versions are applied. Address, user and password come as SQL_* variables.
set -eu

for database in temporal temporal_visibility; do
    versions=/etc/temporal/schema/postgresql/v12/${database#temporal_}/versioned
    temporal-sql-tool --db "$database" create
    temporal-sql-tool --db "$database" setup-schema -v 0.0
    temporal-sql-tool --db "$database" update-schema -d "$versions"
done
