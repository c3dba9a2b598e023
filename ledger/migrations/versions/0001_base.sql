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
    openers    text[] not null default '{}',
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
    transfer            jsonb,
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
-- Who is in the making at a host that caps them.
create index asset_in_flight on asset (account, processing_at) where state in ('creating', 'processing');
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

-- The destination's own view, as its list gave it. `state` is null where neither the list nor any walk's own question
-- has told it; `listing` is that of the newest walk that has seen the video.
create table remote (
    account      text not null,
    remote_id    text not null,
    ref          text,
    state        text,
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

-- One walk over a destination's list. Walks of several runs go on side by side; `asker` is the question that this one
-- answers, so that whoever takes the question over goes on with the walk, and a later question begins anew.
create table remote_listing (
    account      text not null,
    listing      bigint not null,
    run          text not null,
    asker        text not null,
    next_cursor  text,
    videos       bigint not null default 0,
    requests     integer not null default 0,
    started_at   timestamptz not null default now(),
    ended_at     timestamptz,
    primary key (account, listing)
);

-- What an account lets us spend, and what was spent. Moments are seconds since 1970 on the database's clock, as numbers:
-- the functions below compute what `governor/budget.py` does, and a test compares the two.
create table account (
    account       text primary key,
    paused_until  timestamptz,
    pause_reason  text,
    pauses        bigint not null default 0,
    requests      bigint not null default 0,
    factor        double precision not null default 1 check (factor between 0 and 1),
    per_s         double precision check (per_s > 0),
    cuts          bigint not null default 0,
    ceiling       double precision,
    grown_s       double precision not null default 0,
    flow          double precision not null default 0,
    leased_at     double precision not null default 0,
    free_at       double precision not null default 0,
    virtual       double precision not null default 0,
    awaits_place  boolean not null default false,
    updated_at    timestamptz not null default now()
);

-- One row per declared limit. Spent evenly: `free_at` is the theoretical arrival time of the generic cell rate
-- algorithm. As it comes: `used` since `used_from` (a fixed window), or units by slice of time (a sliding one).
create table budget (
    account       text not null,
    name          text not null,
    units         double precision not null check (units > 0),
    window_s      double precision not null check (window_s > 0),
    interval_s    double precision not null check (interval_s >= 0),
    tolerance_s   double precision not null check (tolerance_s >= 0),
    even          boolean not null,
    resets_s      double precision,
    operations    text[] not null default '{}',
    prices        jsonb not null default '{}',
    largest       double precision not null default 1,
    free_at       double precision not null default 0,
    closed_until  double precision not null default 0,
    used          double precision not null default 0,
    used_from     double precision not null default 0,
    slices        bigint[] not null default '{}',
    slice_units   double precision[] not null default '{}',
    primary key (account, name)
);

-- Who shares the account. `virtual` is what was leased, divided by the share due: the least comes next.
create table share (
    account       text not null,
    lane          text not null,
    tenant        text not null,
    weight        double precision not null,
    virtual       double precision not null,
    asks_until    double precision not null,
    leased        bigint not null default 0,
    told          double precision not null default 0,
    primary key (account, lane, tenant)
);

-- Leased starts that came back unused, for whoever asks next.
create table spare (
    account       text not null,
    operation     text not null,
    start         double precision not null
);
create index spare_start on spare (account, operation, start);

-- The adaptive pace: a share of the declared limits where there are any, else requests a second.
create function pace_value(ceiling float8, grown_s float8, known boolean) returns float8
language plpgsql immutable as $$
declare
    share float8;
begin
    if ceiling is null then
        return case when known then 1.0 else least(50.0 * (1.0 + grown_s / 2.0) * (1.0 + grown_s / 2.0), 1000.0) end;
    end if;
    share := case
        when grown_s < 4.0 then 0.5 + 0.47 * grown_s / 4.0
        when grown_s < 20.0 then 0.97
        else 0.97 + ((grown_s - 20.0) / 20.0) * ((grown_s - 20.0) / 20.0) * ((grown_s - 20.0) / 20.0) end;
    return case when known then least(greatest(ceiling * share, 0.1), 1.0)
        else least(greatest(ceiling * share, 1.0), 1000.0) end;
end $$;

-- Units that one request costs of a limit; 0 where the limit does not count it.
create function pace_price(b budget, op text) returns float8 language sql immutable as $$
    select case when b.operations <> '{}' and not op = any (b.operations) then 0
           else coalesce((b.prices ->> op)::float8, 1) end
$$;

-- Units of a limit that is spent as it comes which are used at this moment, and when the next of them come free.
create function pace_used(b budget, clock float8, out used float8, out frees float8)
language plpgsql immutable as $$
declare
    window_from float8;
    present bigint;
begin
    if b.resets_s is not null then
        window_from := floor((clock - b.resets_s) / b.window_s) * b.window_s + b.resets_s;
        used := case when b.used_from = window_from then b.used else 0 end;
        frees := window_from + b.window_s;
    else
        present := floor(clock / (b.window_s / 100.0));
        select coalesce(sum(s.units), 0), (coalesce(min(s.slice), present) + 101) * (b.window_s / 100.0)
        into used, frees
        from unnest(b.slices, b.slice_units) as s(slice, units) where s.slice >= present - 100 and s.units > 0;
    end if;
    if b.closed_until > clock then
        used := b.units;
        frees := b.closed_until;
    end if;
end $$;

-- Leave for up to `wanted` requests; see `lease` in governor/budget.py. `at` is the moment, for tests.
create function pace_lease(
    who text, op text, wanted integer, by_tenant text, by_lane text, by_weight float8, kept float8, named text[],
    lead float8 default 0, at float8 default null
) returns jsonb language plpgsql as $$
declare
    a account;
    b budget;
    own share;
    clock float8;
    known boolean;
    price float8;
    so_far float8;
    frees float8;
    room integer := wanted;
    short text;
    until float8 := 0;
    waiting jsonb;
    behind float8;
    live float8;
    bulk float8;
    due float8;
    in_turn boolean;
    ahead float8 := 5.0;
    near float8 := 2.5;
    reach float8;
    soon float8;
    speed float8;
    rate float8;
    own_pace float8 := 0;
    own_free float8;
    names text[] := '{}';
    frees_at float8[] := '{}';
    intervals float8[] := '{}';
    fulls float8[] := '{}';
    tolerances float8[] := '{}';
    prices float8[] := '{}';
    charge float8 := 1;
    rows integer;
    opens float8;
    first float8;
    start float8;
    starts float8[];
    taken integer;
    made integer := 0;
    weight float8;
    come float8;
    slowest float8;
    present bigint;
begin
    if exists (select from unnest(named) n where n not in (select b2.name from budget b2 where b2.account = who)) then
        return '{"why": "undeclared"}';
    end if;
    insert into account (account) values (who) on conflict do nothing;
    select * into a from account where account = who for update;
    clock := coalesce(at, extract(epoch from clock_timestamp())::float8);
    if a.factor = 0 then
        return jsonb_build_object('why', 'stopped', 'wait', 5.0, 'cuts', a.cuts, 'at', clock);
    end if;
    if extract(epoch from a.paused_until)::float8 > clock then
        return jsonb_build_object('why', 'paused', 'wait', extract(epoch from a.paused_until)::float8 - clock,
                                  'reason', a.pause_reason, 'cuts', a.cuts, 'at', clock);
    end if;
    known := exists (select from budget b2 where b2.account = who and b2.even);
    speed := a.factor * case when known then pace_value(a.ceiling, a.grown_s, known) else 1.0 end;
    opens := clock + lead;
    for b in select * from budget b2 where b2.account = who order by b2.name collate "C" loop
        price := pace_price(b, op);
        continue when price = 0;
        charge := greatest(charge, price);
        if b.even then
            names := names || b.name;
            intervals := intervals || b.interval_s / speed;
            fulls := fulls || b.interval_s;
            tolerances := tolerances || b.tolerance_s;
            prices := prices || price;
            -- A pace that was slower when this was written must not be waited for.
            frees_at := frees_at || least(b.free_at, clock + 5.0 + b.tolerance_s + b.largest * (b.interval_s / speed));
            opens := greatest(opens, b.closed_until);
        else
            select u.used, u.frees into so_far, frees from pace_used(b, clock) u;
            room := least(room, greatest(0, floor((b.units - so_far) / price))::integer);
            if floor((b.units - so_far) / price) < 1 and frees > until then
                until := frees;
                short := b.name;
            end if;
        end if;
    end loop;
    if room < 1 then
        return jsonb_build_object('why', 'spent', 'wait', until - clock, 'reason', short, 'cuts', a.cuts, 'at', clock);
    end if;

    -- whose turn it is
    select * into own from share s where s.account = who and s.lane = by_lane and s.tenant = by_tenant;
    own.virtual := greatest(coalesce(own.virtual, 0), a.virtual - 25.0);
    select least(own.virtual, min(greatest(s.virtual, a.virtual - 25.0))),
           coalesce(sum(s.weight) filter (where s.lane = 'live'), 0),
           coalesce(sum(s.weight) filter (where s.lane <> 'live'), 0)
    into behind, live, bulk
    from share s
    where s.account = who and not (s.lane = by_lane and s.tenant = by_tenant) and s.asks_until >= clock;
    in_turn := own.virtual <= behind + 25.0;
    if not known or pace_value(a.ceiling, a.grown_s, known) < 1.0 then
        ahead := 2.0;
        near := 1.0;
    end if;
    reach := greatest(case when in_turn then ahead else 0 end, lead + 0.3);
    soon := greatest(case when in_turn then near else 0 end, lead + 0.3);

    -- when the next requests may start: at the latest moment that any of the limits says
    rate := least(case when known then null else pace_value(a.ceiling, a.grown_s, known) * a.factor end, a.per_s);
    own_pace := coalesce(1.0 / rate, 0);
    own_free := case when rate is null then 0 else least(a.free_at, clock + 5.0 + own_pace) end;
    rows := coalesce(array_length(names, 1), 0);
    first := greatest(opens, own_free);
    for i in 1 .. rows loop
        first := greatest(first, frees_at[i] - tolerances[i]);
    end loop;
    with back as (
        delete from spare where ctid in (
            select ctid from spare s where s.account = who and s.operation = op
            and s.start between opens and clock + reach order by s.start limit room
        ) returning spare.start
    )
    select coalesce(array_agg(back.start), '{}') into starts from back;
    taken := coalesce(array_length(starts, 1), 0);
    while taken < room loop
        start := greatest(opens, own_free);
        for i in 1 .. rows loop
            start := greatest(start, frees_at[i] - tolerances[i]);
        end loop;
        exit when start > clock + reach or (taken = 0 and start > clock + soon);
        starts := starts || start;
        taken := taken + 1;
        made := made + 1;
        own_free := case when rate is null then 0 else greatest(own_free, start) + own_pace end;
        for i in 1 .. rows loop
            frees_at[i] := greatest(frees_at[i], start) + prices[i] * intervals[i];
        end loop;
    end loop;
    if taken = 0 then
        come := greatest(first - soon + 0.05, clock + 0.05);
        own.told := coalesce(own.told, 0);
        if in_turn then
            slowest := own_pace;
            for i in 1 .. rows loop
                slowest := greatest(slowest, prices[i] * intervals[i]);
            end loop;
            own.told := own.told + least(ahead - near, wanted * slowest);
            come := case when own.told <= clock + 30.0 then greatest(come, own.told) else come end;
            own.told := come;
        end if;
        insert into share values (who, by_lane, by_tenant, by_weight, own.virtual, come + 2.0, 0, own.told)
        on conflict (account, lane, tenant) do update set weight = excluded.weight, virtual = excluded.virtual,
            asks_until = excluded.asks_until, told = excluded.told;
        return jsonb_build_object('why', case when in_turn then 'slot' else 'turn' end, 'wait', come - clock,
                                  'cuts', a.cuts, 'at', clock);
    end if;

    -- what is taken
    if by_lane = 'live' then
        live := live + by_weight;
        due := by_weight / live * case when bulk > 0 and kept > 0 then kept else live / (live + bulk) end;
    else
        bulk := bulk + by_weight;
        due := by_weight / bulk * case when live > 0 and kept > 0 then 1.0 - kept else bulk / (live + bulk) end;
    end if;
    charge := charge / due;
    select array_agg(s order by s) into starts from unnest(starts) s;
    insert into share values (who, by_lane, by_tenant, by_weight, own.virtual + taken * charge, starts[taken] + 2.0, taken)
    on conflict (account, lane, tenant) do update set weight = excluded.weight, virtual = excluded.virtual,
        asks_until = excluded.asks_until, leased = share.leased + excluded.leased;
    update budget b2 set free_at = made.free_at
    from unnest(names, frees_at) as made(name, free_at) where b2.account = who and b2.name = made.name;
    for b in select * from budget b2 where b2.account = who and not b2.even loop
        price := pace_price(b, op);
        continue when price = 0;
        if b.resets_s is not null then
            select u.used into so_far from pace_used(b, clock) u;
            update budget b2 set used = so_far + taken * price,
                used_from = floor((clock - b.resets_s) / b.window_s) * b.window_s + b.resets_s
            where b2.account = who and b2.name = b.name;
        else
            present := floor(clock / (b.window_s / 100.0));
            update budget b2 set (slices, slice_units) = (
                select array_agg(s.slice order by s.slice), array_agg(s.units order by s.slice) from (
                    select all_of.slice, sum(all_of.units) as units from (
                        select o.slice, o.units from unnest(b.slices, b.slice_units) as o(slice, units)
                        where o.slice >= present - 100
                        union all select present, taken * price
                    ) as all_of group by all_of.slice
                ) as s)
            where b2.account = who and b2.name = b.name;
        end if;
    end loop;
    delete from spare s where s.account = who and s.start < clock;
    weight := case when known then 0 else 1 end;
    for i in 1 .. rows loop
        if known then
            weight := greatest(weight, prices[i] * fulls[i]);
        end if;
    end loop;
    update account set requests = account.requests + taken, flow = account.flow + made * weight, leased_at = clock,
        grown_s = account.grown_s + case when first > clock + lead then least(clock - account.leased_at, 5.0) else 0 end,
        free_at = case when rate is null then account.free_at else own_free end,
        -- Out of turn, who is behind keeps the claim to as much as this tenant is ahead by one whole lease.
        virtual = greatest(account.virtual, own.virtual - case when in_turn then 0 else 25.0 * charge end),
        updated_at = clock_timestamp()
    where account.account = who;
    return jsonb_build_object('starts', to_jsonb(starts), 'cuts', a.cuts, 'at', clock, 'charge', charge);
end $$;

-- Requests of a lease that were not made; see `give_back` in governor/budget.py.
create function pace_return(
    who text, op text, unused float8[], by_tenant text, by_lane text, leased_at float8, charge float8,
    leased_cuts bigint, at float8 default null
) returns void language plpgsql as $$
declare
    clock float8;
    gone integer := coalesce(array_length(unused, 1), 0);
begin
    perform from account where account = who for update;
    clock := coalesce(at, extract(epoch from clock_timestamp())::float8);
    update account set requests = greatest(account.requests - gone, 0) where account.account = who;
    update share s set virtual = greatest(s.virtual - gone * charge, 0), leased = greatest(s.leased - gone, 0)
    where s.account = who and s.lane = by_lane and s.tenant = by_tenant;
    update budget b set
        used = case when b.resets_s is not null
                     and b.used_from = floor((leased_at - b.resets_s) / b.window_s) * b.window_s + b.resets_s
               then greatest(b.used - gone * pace_price(b, op), 0) else b.used end,
        slice_units = case when b.resets_s is not null then b.slice_units else coalesce((
            select array_agg(case when s.slice = floor(leased_at / (b.window_s / 100.0))
                             then greatest(s.units - gone * pace_price(b, op), 0) else s.units end order by s.slice)
            from unnest(b.slices, b.slice_units) as s(slice, units)), '{}') end
    where b.account = who and not b.even and pace_price(b, op) > 0;
    -- What was leased before a cut of the pace is void.
    insert into spare select who, op, s from unnest(unused) s
    where s > clock and leased_cuts = (select a.cuts from account a where a.account = who);
end $$;

-- The host refused; see `push_back` in governor/budget.py. Tells every worker at once.
create function pace_push_back(
    who text, seconds float8, why text, leased_cuts bigint, at float8 default null
) returns void language plpgsql as $$
declare
    a account;
    clock float8;
    known boolean := exists (select from budget b where b.account = who and b.even);
    refused float8;
    sent float8;
    ahead float8;
    before float8;
begin
    insert into account (account) values (who) on conflict do nothing;
    select * into a from account where account = who for update;
    clock := coalesce(at, extract(epoch from clock_timestamp())::float8);
    before := coalesce(extract(epoch from a.paused_until)::float8, 0);
    update account set
        paused_until = to_timestamp(greatest(before, clock + seconds)),
        pause_reason = case when clock + seconds > before then why else a.pause_reason end,
        -- Refusals that arrive while the account is paused belong to the event that paused it.
        pauses = a.pauses + case when before <= clock then 1 else 0 end
    where account.account = who;
    if leased_cuts = a.cuts then
        refused := pace_value(a.ceiling, a.grown_s, known);
        ahead := case when known
            then (select max(b.free_at - b.tolerance_s - clock) from budget b where b.account = who and b.even)
            else a.free_at - clock end;
        sent := (a.flow - greatest(0, ahead) * refused) / (a.grown_s + 1.0);
        if a.grown_s > 22.0 then
            sent := greatest(sent, (a.flow - greatest(0, ahead) * refused - a.ceiling * 18.46) / (a.grown_s - 20.0));
        end if;
        update account set cuts = a.cuts + 1, grown_s = 0, free_at = least(a.free_at, clock),
            ceiling = greatest(least(refused, greatest(sent * 1.02, refused / 2.0)),
                               case when known then 0.2 else 2.0 end), flow = 0
        where account.account = who returning * into a;
        -- What is leased and not yet made is not to be made any more: the starts after this moment are free again.
        update budget b set free_at = least(b.free_at, clock + b.tolerance_s + b.largest * b.interval_s)
        where b.account = who;
        delete from spare s where s.account = who;
        update share s set told = 0 where s.account = who;
    end if;
    perform pg_notify('longhaul_pace',
                      json_build_object('account', who, 'seconds', seconds, 'cuts', a.cuts)::text);
end $$;

-- A person sets the pace: a share of what is declared or found, and requests a second at most. Tells every worker.
create function pace_set(who text, share_of float8, most_per_s float8, restored boolean) returns void
language plpgsql as $$
begin
    insert into account (account) values (who) on conflict do nothing;
    update account a set factor = share_of, per_s = most_per_s,
        paused_until = case when restored then null else a.paused_until end
    where a.account = who;
    -- Those who wait for a far start ask again.
    update share s set told = 0 where s.account = who;
    perform pg_notify('longhaul_pace', json_build_object('account', who, 'seconds', case when restored then 0 end,
                                                         'stopped', share_of = 0)::text);
end $$;

-- The account's limits become these; see `declared` in governor/budget.py.
create function pace_declare(
    who text, given jsonb, only_missing boolean, spent boolean, at float8 default null
) returns void language plpgsql as $$
declare
    clock float8;
begin
    insert into account (account) values (who) on conflict do nothing;
    perform from account where account = who for update;
    clock := coalesce(at, extract(epoch from clock_timestamp())::float8);
    if not only_missing then
        delete from budget b where b.account = who
        and b.name not in (select g.name from jsonb_to_recordset(given) as g(name text));
    end if;
    insert into budget as b (account, name, units, window_s, interval_s, tolerance_s, even, resets_s, operations,
                             prices, largest, closed_until)
    select who, g.name, g.units, g.window_s, g.interval_s, g.tolerance_s, g.even, g.resets_s, g.operations, g.prices,
           g.largest, case when spent then clock + g.window_s else 0 end
    from jsonb_to_recordset(given) as g(
        name text, units float8, window_s float8, interval_s float8, tolerance_s float8, even boolean, resets_s float8,
        operations text[], prices jsonb, largest float8)
    on conflict (account, name) do update set units = excluded.units, window_s = excluded.window_s,
        interval_s = excluded.interval_s, tolerance_s = excluded.tolerance_s, even = excluded.even,
        resets_s = excluded.resets_s, operations = excluded.operations, prices = excluded.prices,
        largest = excluded.largest
    where not only_missing;
end $$;
