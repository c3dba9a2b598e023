-- The ledger's first schema. Times are the database's own; sizes in bytes, durations in milliseconds.

create sequence fence_number as bigint;

create table run (
    run          text primary key,
    tenant       text not null,
    source       text not null,
    source_spec  jsonb not null,
    account      text not null,
    plan         text[] not null,
    state        text not null default 'running'
                 check (state in ('running', 'paused', 'parked', 'awaiting-approval', 'cancelled', 'finished', 'failed')),
    reason       text,
    detail       text,
    until        timestamptz,
    pages        integer not null default 0,
    approved_at  timestamptz,
    created_at   timestamptz not null default now(),
    ended_at     timestamptz
);

create table phase (
    run        text not null references run,
    phase      text not null,
    fence      bigint not null,
    opened_at  timestamptz not null default now(),
    closed_at  timestamptz,
    primary key (run, phase)
);

-- One row per page of the source's listing, with the cursor that leads on from it: where a killed walk goes on.
create table listing (
    run          text not null references run,
    walk         integer not null,
    stripe       integer not null,
    sequence     integer not null,
    next_cursor  text,
    page         integer,
    listed       integer not null,
    added        integer not null,
    owned        integer not null,
    collapsed    integer not null,
    blank        integer not null,
    total        bigint,
    listed_at    timestamptz not null default now(),
    primary key (run, walk, stripe, sequence)
);

-- Entries of a source that could not be taken, with where they stand.
create table problem (
    run       text not null references run,
    position  bigint not null,
    field     text not null default '',
    words     text not null,
    primary key (run, position, field)
);

create table asset (
    ref                 text primary key,
    tenant              text not null,
    source              text not null,
    kind                text not null,
    source_id           text not null,
    run                 text not null references run,
    page                integer not null,
    position            bigint not null,
    account             text not null,
    title               text,
    locator             text,
    size                bigint,
    claimed_duration_ms bigint,
    metadata            jsonb not null default '{}',
    about               jsonb not null default '{}',
    state               text not null,
    reason              text,
    detail              text,
    skipped_from        text,
    fence               bigint not null default 0,
    claim               uuid,
    claim_key           text,
    claimed_by          text,
    claim_until         timestamptz,
    attempts            integer not null default 0,
    deaths              integer not null default 0,
    not_before          timestamptz,
    intent_at           timestamptz,
    quiet_until         timestamptz,
    facts               jsonb,
    duration_ms         bigint,
    remote_id           text,
    retired             text[] not null default '{}',
    remote_duration_ms  bigint,
    remote_width        integer,
    remote_height       integer,
    remote_size         bigint,
    playback            text,
    processing_at       timestamptz,
    created_at          timestamptz not null default now(),
    updated_at          timestamptz not null default now(),
    unique (tenant, source, kind, source_id)
) with (fillfactor = 85);

create index asset_page on asset (run, page);
create index asset_state on asset (run, state, page);
create unique index asset_remote on asset (account, remote_id) where remote_id is not null;

-- One row per asset, phase and attempt: "what happened to this file?"
create table step (
    ref         text not null references asset on delete cascade,
    fence       bigint not null,
    run         text not null,
    phase       text not null,
    attempt     integer not null,
    worker      text not null,
    started_at  timestamptz not null default clock_timestamp(),
    ended_at    timestamptz,
    outcome     text,
    reason      text,
    detail      text,
    primary key (ref, fence)
);

create table inbox (
    id            bigint generated always as identity primary key,
    account       text not null,
    dedupe_key    text not null,
    kind          text not null default '',
    remote_id     text,
    ref           text,
    state         text,
    video         jsonb,
    received_at   timestamptz not null default now(),
    applied_at    timestamptz,
    outcome       text,
    run           text,
    page          integer,
    signalled_at  timestamptz,
    unique (account, dedupe_key)
);
create index inbox_waiting on inbox (received_at) where applied_at is null;
create index inbox_unsignalled on inbox (id) where applied_at is not null and signalled_at is null;

-- The destination's own view, as its list gave it.
create table remote (
    account      text not null,
    remote_id    text not null,
    ref          text,
    state        text not null,
    reason       text,
    detail       text,
    duration_ms  bigint,
    width        integer,
    height       integer,
    size         bigint,
    playback     text,
    title        text,
    listing      bigint not null,
    seen_at      timestamptz not null default now(),
    primary key (account, remote_id)
);
create index remote_ref on remote (account, ref) where ref is not null;

-- One walk over a destination's list. The newest number is the fence: an older walk's late pages change nothing.
create table remote_listing (
    account      text not null,
    listing      bigint not null,
    run          text,
    next_cursor  text,
    videos       bigint not null default 0,
    requests     integer not null default 0,
    started_at   timestamptz not null default now(),
    ended_at     timestamptz,
    primary key (account, listing)
);

-- What an account lets us spend. `free_at` is the theoretical arrival time of the generic cell rate algorithm.
create table budget (
    account    text not null,
    name       text not null,
    interval_s double precision not null check (interval_s > 0),
    burst      integer not null check (burst >= 1),
    free_at    timestamptz not null default now(),
    primary key (account, name)
);

create table account (
    account       text primary key,
    paused_until  timestamptz,
    pause_reason  text,
    pauses        bigint not null default 0,
    requests      bigint not null default 0,
    creates       bigint not null default 0,
    updated_at    timestamptz not null default now()
);
