# The programs of Longhaul: worker, endpoint, command line, schema, sandbox. Which one runs is the command.

FROM python:3.13.14-slim-trixie AS packages

COPY requirements-runtime.lock /tmp/requirements-runtime.lock
# Wheels only: this image has no compiler, and a build from source would be another artefact than the one hashed.
RUN python -m venv /opt/longhaul \
    && /opt/longhaul/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary=:all: \
        -r /tmp/requirements-runtime.lock


FROM python:3.13.14-slim-trixie

# ffprobe comes in Debian's ffmpeg package.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ffmpeg \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 longhaul \
    && useradd --uid 10001 --gid longhaul --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin longhaul \
    && install --directory --owner=longhaul --group=longhaul /data

COPY --from=packages /opt/longhaul /opt/longhaul
ENV PATH=/opt/longhaul/bin:$PATH \
    PYTHONUNBUFFERED=1

WORKDIR /app
COPY client.py connection.py crossings.py display.py faults.py program.py relay.py settings.py starter.py telemetry.py webhook.py worker.py ./
COPY activities/ activities/
COPY destinations/ destinations/
COPY governor/ governor/
COPY ledger/ ledger/
COPY media/ media/
COPY sandbox/ sandbox/
COPY sources/ sources/
COPY workflows/ workflows/
RUN python -m compileall -q .

USER longhaul
CMD ["python", "starter.py", "--help"]
