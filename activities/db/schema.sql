-- Outlast's read model.
--
-- Temporal's history is the truth about what happened in which order; these tables are a projection of it and what
-- every read is served from. Four ideas carry the schema:
--
-- 1. Counters under one lock. `sessions.cursor` numbers the events of a session and `sessions.feed` the changes of its messages;
--    both are raised under the session row's lock by the transaction that writes them. A reader that has seen number n
--    therefore never meets a later commit with a smaller one.
-- 2. A tree without recursion. A message knows its branch, its depth and how many rows its path has; a branch knows the
--    chain of branches that it hangs on. A path, an ordinal or a cold load is one index range per branch of that chain.
-- 3. Append, don't rewrite. A turn adds segments, model messages, calls and events; it doesn't rewrite documents that grow.
--    Tool outputs are stored once, with their call.
-- 4. Invariants are constraints: one root, a parent in the same session, one live turn, one open batch, a call recorded once.
--
-- Times come from the workflow or the activity's result, never from a default, so that rows can be derived again.
-- `json`, not `jsonb`, wherever a model or a host wrote the text: it keeps bytes, key order and escaped NULs.

create table sessions (
  session_uid uuid primary key,
  tenant text not null,
  session_id text not null check (session_id ~ '^[A-Za-z0-9._:-]{1,64}$' and session_id not in ('.', '..')),
  owner text,
  kind text not null default 'conversation' check (kind in ('conversation', 'task', 'agent')),
  parent_uid uuid references sessions on delete set null,
  profile text not null,
  subject text,
  title text,
  active_leaf_id text,
  revision bigint not null default 0, turn_number integer not null default 0, message_count integer not null default 0,
  cursor bigint not null default 0, feed bigint not null default 0,
  events_from bigint not null default 0, -- events up to this number were removed, or are about to be, because they are old
  host_context json, host_context_at timestamptz,
  created_at timestamptz not null, updated_at timestamptz not null,
  expires_at timestamptz,
  unique (tenant, session_id)
);
create index sessions_by_owner on sessions (tenant, owner, updated_at desc, session_uid);
create index sessions_by_parent on sessions (parent_uid) where parent_uid is not null;
create index sessions_by_tenant on sessions (tenant, updated_at desc, session_uid);

-- A branch is a line of messages without forks. Its path is its own messages up to a depth, before them those of the branch it
-- forked from up to `fork_depth`, and so on: `chain` and `chain_depths` list (branch, deepest depth that belongs to the path), the
-- root's branch first.
create table branches (
  session_uid uuid not null references sessions on delete cascade,
  branch integer not null,
  tip_depth integer not null,
  chain integer[] not null,
  chain_depths integer[] not null check (cardinality(chain) = cardinality(chain_depths)),
  primary key (session_uid, branch)
);

create table messages (
  session_uid uuid not null references sessions on delete cascade,
  id text not null check (id ~ '^[A-Za-z0-9._:-]{1,64}$' and id not in ('.', '..')),
  parent_id text,
  role text not null check (role in ('user', 'assistant', 'host')),
  content text not null,
  branch integer not null, depth integer not null check (depth >= 0),
  -- rows of the transcript on the path up to and including this message
  count_all integer not null, count_user integer not null, count_assistant integer not null,
  turn_id text,
  profile text,
  model text,
  usage json,
  error json,
  prompt json,
  attachments json,
  digest text,
  change bigint not null,
  created_at timestamptz not null, updated_at timestamptz not null,
  -- the time of its row in the transcript: a user's or host's words when they were accepted, an assistant's when the last of its text was stored
  said_at timestamptz not null,
  -- its text is whole: false for an assistant's until its first turn has ended
  settled boolean not null,
  primary key (session_uid, id),
  foreign key (session_uid, parent_id) references messages (session_uid, id) deferrable initially deferred,
  foreign key (session_uid, branch) references branches (session_uid, branch) deferrable initially deferred,
  unique (session_uid, branch, depth),
  check ((parent_id is null) = (depth = 0))
);
create unique index messages_one_root on messages (session_uid) where parent_id is null;
create index messages_by_parent on messages (session_uid, parent_id);
create index messages_by_change on messages (session_uid, change);
-- An ordinal of the transcript is found by the counts, without walking the path (S16).
create index messages_by_count_all on messages (session_uid, branch, count_all, depth);
create index messages_by_count_user on messages (session_uid, branch, count_user, depth);
create index messages_by_count_assistant on messages (session_uid, branch, count_assistant, depth);
create index messages_by_time on messages (session_uid, said_at);

-- Full text search goes from one session to the next, and looks only at that session's part of the index: each text has the word
-- `=<session_uid>`, which no parser makes of a text. Words are taken as they are, in lower case: no language, no stemming, no stop words. Paths,
-- addresses and compounds are taken apart (`plain_words` changes no length): who looks for `orders` finds `/orders`. More than 100,000 characters
-- could hold more words than a tsvector, and a text must be stored whatever it says: what lies behind is not found.
create function plain_words(content text) returns text
language sql immutable parallel safe
return translate(content, E'./\\@:+%&=?#~<>_-', repeat(' ', 16));

create function search_words(session_uid uuid, content text) returns tsvector
language sql immutable parallel safe
return to_tsvector('pg_catalog.simple'::regconfig, plain_words(left(content, 100000))) || array_to_tsvector(array['=' || session_uid::text]);

-- Each new version of a row is indexed anew, so an answer has its words here once it is settled, and not with each of its steps. The list of
-- entries to be sorted in is kept short: whoever fills it up empties it, and that is within a turn.
create index messages_by_words on messages using gin (search_words(session_uid, content)) with (gin_pending_list_limit = 512)
  where settled and content <> '';

-- The display form of a message: thinking and text as they were streamed, a place for each group of tool calls, host cards.
create table segments (
  session_uid uuid not null,
  message_id text not null,
  position integer not null check (position >= 0),
  turn_id text, attempt integer, step integer,
  kind text not null check (kind in ('thinking', 'text', 'tool_group', 'component')),
  text text not null default '',
  data json,
  primary key (session_uid, message_id, position),
  foreign key (session_uid, message_id) references messages (session_uid, id) on delete cascade
);

-- What the model was given and what it answered: one pydantic-ai message a row, in order within its message of the tree.
create table model_messages (
  session_uid uuid not null,
  message_id text not null,
  position integer not null check (position >= 0),
  turn_id text, attempt integer, step integer,
  kind text not null check (kind in ('request', 'response')),
  body json not null,
  library text not null,
  primary key (session_uid, message_id, position),
  foreign key (session_uid, message_id) references messages (session_uid, id) on delete cascade
);

create table turns (
  session_uid uuid not null references sessions on delete cascade,
  turn_id text not null check (turn_id ~ '^[A-Za-z0-9._:-]{1,64}$'),
  number integer not null,
  attempt integer not null default 1,
  -- how often a step of the turn has begun, on whichever worker: only the newest run writes (it fences runs, and is no part of the projection)
  run integer not null default 1,
  kind text not null check (kind in ('message', 'continuation', 'steering')),
  state text not null check (state in ('running', 'completed', 'waiting', 'failed', 'cancelled')),
  message_id text not null,
  user_message_id text,
  profile text not null,
  config json,
  content text not null default '',
  model text,
  usage json,
  error json,
  final json,
  triage text not null default 'none' check (triage in ('none', 'pending', 'done', 'skipped', 'failed')),
  accepted_at timestamptz not null,
  started_at timestamptz not null,
  first_text_at timestamptz,
  ended_at timestamptz,
  steps integer not null default 0,
  primary key (session_uid, turn_id),
  unique (session_uid, number),
  check ((state = 'running') = (ended_at is null)),
  check ((state = 'running') = (final is null))
);
create unique index turns_one_live on turns (session_uid) where state = 'running';
create index turns_by_message on turns (session_uid, message_id);

-- Words that join a turn without beginning one. `number` is the order of acceptance, `own_turn_id` the turn that the words get if they are
-- promoted, `turn_id` the one that took them. They were told before the segments of their message from `before_segment` on.
create table steering (
  session_uid uuid not null references sessions on delete cascade,
  id text not null check (id ~ '^[A-Za-z0-9._:-]{1,64}$' and id not in ('.', '..')),
  number bigint not null,
  content text not null,
  profile text,
  digest text not null,
  status text not null default 'pending' check (status in ('pending', 'delivered')),
  own_turn_id text,
  turn_id text,
  message_id text,
  before_segment integer,
  change bigint not null,
  accepted_at timestamptz not null,
  delivered_at timestamptz,
  primary key (session_uid, id),
  unique (session_uid, number),
  check ((status = 'delivered') = (delivered_at is not null and message_id is not null and before_segment is not null))
);
create index steering_pending on steering (session_uid, number) where status = 'pending';
create index steering_by_message on steering (session_uid, message_id);
create index steering_by_words on steering using gin (search_words(session_uid, content)) with (gin_pending_list_limit = 512);
create index steering_by_time on steering (session_uid, delivered_at) where status = 'delivered';

-- A closed step. The row is the write guard: who inserts it has closed the step, everyone later reads it.
-- `result` is what the workflow was answered; it is dropped when a later turn opens.
create table steps (
  session_uid uuid not null, turn_id text not null, attempt integer not null, step integer not null,
  result json,
  primary key (session_uid, turn_id, attempt, step),
  foreign key (session_uid, turn_id) references turns (session_uid, turn_id) on delete cascade
);

create index steps_unread on steps (session_uid) where result is not null;

-- A step that is not closed yet: how often its provider failed for which model of the list, how much of the turn's time that took,
-- and how many segments it has announced by durable events before its end.
create table step_progress (
  session_uid uuid not null, turn_id text not null, attempt integer not null, step integer not null,
  model_index integer not null default 0,
  failures integer not null default 0,
  seconds double precision not null default 0,
  announced integer not null default 0,
  primary key (session_uid, turn_id, attempt, step),
  foreign key (session_uid, turn_id) references turns (session_uid, turn_id) on delete cascade
);

create table host_batches (
  session_uid uuid not null references sessions on delete cascade,
  message_id text not null,
  turn_id text not null,
  step integer not null,
  handover text not null default 'one' check (handover in ('one', 'all')),
  state text not null check (state in ('open', 'closed')),
  opened_at timestamptz not null,
  primary key (session_uid, turn_id, step),
  foreign key (session_uid, message_id) references messages (session_uid, id) on delete cascade
);
create index host_batches_by_message on host_batches (session_uid, message_id);
create unique index host_batches_one_open on host_batches (session_uid) where state = 'open';

create table calls (
  session_uid uuid not null,
  call_id text not null,
  message_id text not null,
  segment integer not null,
  turn_id text not null, attempt integer not null, step integer not null, position integer not null,
  tool_name text not null,
  category text not null check (category in ('server', 'host')),
  arguments json not null,
  arguments_digest text not null,
  options json not null,
  token_id uuid,
  state text not null check (state in ('open', 'recorded')),
  outcome text check (outcome in ('success', 'failed', 'denied', 'retried', 'interrupted')),
  status text check (status in ('failed', 'denied', 'cancelled', 'superseded', 'unknown')),
  output json,
  model_text text,
  duration_ms bigint,
  requested_at timestamptz not null, deadline_at timestamptz, recorded_at timestamptz,
  primary key (session_uid, call_id),
  foreign key (session_uid, message_id) references messages (session_uid, id) on delete cascade,
  check ((state = 'recorded') = (recorded_at is not null)),
  check ((state = 'recorded') = (outcome is not null))
);
create index calls_by_message on calls (session_uid, message_id, segment, position);
create index calls_open on calls (session_uid) where state = 'open';
create index calls_by_time on calls (session_uid, recorded_at) where state = 'recorded';

-- The rows of the transcript. Those of one message are in order by (place, kind, position): its finished calls as the model made them,
-- steering before the calls that were made after it, and its whole text last, if it has any. `messages.count_…` count exactly these.
create view transcript as
select session_uid, id as message_id, role, id, said_at as at, content, null::json as output, null::text as tool_name,
  null::text as outcome, null::text as status, 2147483647 as place, 0 as kind, 0::bigint as position
from messages where role <> 'assistant' or content <> ''
union all
select session_uid, message_id, 'tool'::text, call_id, recorded_at, model_text, output, tool_name, outcome, status, segment, 1, position::bigint
from calls where state = 'recorded'
union all
select session_uid, message_id, 'user'::text, id, delivered_at, content, null::json, null::text, null::text, null::text, before_segment, 0, number
from steering where status = 'delivered';

-- Durable events. `text` rows are not sent as such: they stand for the deltas between two durable events. Their data names
-- which characters of which segments those were, or carries the characters where the segments were taken back.
create table events (
  session_uid uuid not null references sessions on delete cascade,
  seq bigint not null,
  turn_id text,
  type text not null,
  data json not null,
  at timestamptz not null,
  primary key (session_uid, seq)
);
create index events_by_turn on events (session_uid, turn_id, seq);

-- Text of the live step, kept until its segments are stored. `position` counts code points since durable event `after_seq`.
create table live_deltas (
  session_uid uuid not null references sessions on delete cascade,
  after_seq bigint not null,
  position integer not null,
  turn_id text not null,
  segment integer not null,
  start_offset integer not null,
  kind text not null check (kind in ('thinking', 'text')),
  text text not null,
  primary key (session_uid, after_seq, position)
);

-- The stable part of system prompts, once each.
create table prompt_snapshots (
  sha256 text primary key,
  text text not null,
  created_at timestamptz not null
);

-- What model requests cost. Apart from the session's rows, so that budgets and bills outlive an erasure; no content.
create table usage_ledger (
  session_uid uuid not null, turn_id text not null, attempt integer not null, step integer not null,
  tenant text not null, principal text, model text not null,
  input_tokens bigint not null, output_tokens bigint not null,
  cost_usd numeric,
  at timestamptz not null,
  primary key (session_uid, turn_id, attempt, step)
);
create index usage_ledger_by_principal on usage_ledger (tenant, principal, at);

-- Who did what that no other row tells, or no longer: to a session, or to the `target` that the action is about (the id of an API key,
-- the principal whose data was erased). `facts` are ids and numbers. No content.
create table audit (
  id uuid primary key,
  session_uid uuid, target text,
  tenant text not null, principal text not null,
  action text not null check (action in ('owner_change', 'export', 'erase', 'expire', 'key_create', 'key_revoke')),
  facts json not null,
  at timestamptz not null,
  check (session_uid is not null or target is not null)
);
create index audit_by_tenant on audit (tenant, at);
create index audit_by_session on audit (session_uid, at);

-- Erasures: of a session, under the session's uid, or of all sessions of a principal, whose erasures are then `part_of` it. What went is counted
-- in the transaction that removes it, so that nothing is lost or counted twice whoever dies. Ids and numbers only; outlives what it removed.
create table erasures (
  id uuid primary key,
  part_of uuid references erasures on delete set null,
  tenant text not null, principal text,
  session_id text,
  rows json not null,
  payloads integer not null default 0,
  workflow_runs integer not null default 0,
  begun_at timestamptz not null, verified_at timestamptz,
  check (session_id is not null or principal is not null)
);
create index erasures_by_whole on erasures (part_of, id) where part_of is not null;

-- Payloads in S3 that an erasure has counted, by their digests, until it is verified. S3 takes part in no transaction: an object is counted here
-- before it is removed, and not again by who finds it gone, or there still.
create table erased_objects (
  erasure_id uuid not null references erasures on delete cascade,
  name text not null,
  primary key (erasure_id, name)
);

-- API keys. What a client holds is `olk_<key_id>_<secret>`; here is only its SHA-256, which is enough for 256 random bits. Revoked keys stay
-- listed. `last_used_at` lags behind by up to a minute.
create table api_keys (
  key_id text primary key check (key_id ~ '^[0-9a-f]{12}$'),
  hash bytea not null check (octet_length(hash) = 32),
  tenant text not null, principal text not null,
  roles text[] not null check (roles <@ array['admin', 'service']),
  created_at timestamptz not null,
  expires_at timestamptz, last_used_at timestamptz, revoked_at timestamptz
);
create index api_keys_by_tenant on api_keys (tenant, created_at, key_id);

-- Temporal payloads over the inline limit, as the SDK's external storage hands them over (after encryption).
create table payloads (
  key uuid primary key,
  workflow_id text not null,
  body bytea not null,
  created_at timestamptz not null
);
create index payloads_by_workflow on payloads (workflow_id);

-- Writes that a client marked with an `Idempotency-Key`. A row is made before the write is sent, and gets its answer afterwards: one without
-- `answer` is under way, or its process died. Answers that show a session's content hang on the session and go with it.
create table idempotency_keys (
  tenant text not null, principal text not null, key text not null check (char_length(key) between 1 and 255),
  digest text not null, route text not null,
  session_uid uuid references sessions on delete cascade,
  status integer, answer json,
  created_at timestamptz not null,
  primary key (tenant, principal, key),
  check ((status is null) = (answer is null))
);
create index idempotency_keys_by_time on idempotency_keys (created_at);
create index idempotency_keys_by_session on idempotency_keys (session_uid);

-- Several indexes of a table begin with the session, and each could serve a lookup within a session, at the price of reading all that the session
-- has. That they differ, Postgres knows only by how many rows a session has on average: where nearly all sessions have one turn, it would take any
-- of them, and a turn of the one long session would cost what the session is long. So it plans as if a session had fifty rows.
alter table messages alter column session_uid set (n_distinct = -0.02);
alter table turns alter column session_uid set (n_distinct = -0.02);
alter table steering alter column session_uid set (n_distinct = -0.02);
alter table steps alter column session_uid set (n_distinct = -0.02);
alter table host_batches alter column session_uid set (n_distinct = -0.02);
alter table calls alter column session_uid set (n_distinct = -0.02);
alter table events alter column session_uid set (n_distinct = -0.02);
