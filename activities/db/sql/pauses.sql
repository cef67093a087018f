-- name: pauses_of(session_uid, call_ids)
-- What pause tokens for some host calls are bound to, as the rows have it now. The digest is of the arguments that the rows show. A call that
-- waits in a batch which is handed over one by one is there too; whoever shows it knows whether it is its turn.
select
  s.tenant, s.session_uid, s.owner, c.call_id, c.token_id, encode(sha256(convert_to(c.arguments::text, 'UTF8')), 'hex') as digest, b.handover
from sessions s
join calls c on c.session_uid = s.session_uid and c.category = 'host' and c.token_id is not null
join host_batches b on b.session_uid = c.session_uid and b.turn_id = c.turn_id and b.step = c.step
where s.session_uid = :session_uid and c.call_id = any(:call_ids::text[]);

-- name: paused_call(session_uid, call_id, expires, held)^
-- Where a session stands whose token came back, and its call if it is still there. A session whose time is over is not (reads.sql).
select
  s.session_id, s.owner, c.token_id, encode(sha256(convert_to(c.arguments::text, 'UTF8')), 'hex') as digest
from sessions s
left join calls c on c.session_uid = s.session_uid and c.call_id = :call_id and c.category = 'host'
where s.session_uid = :session_uid
  and not (
    cast(:expires as boolean) and s.expires_at is not null and s.expires_at <= now()
    and not exists (select from turns l where l.session_uid = s.session_uid and l.state = 'running')
    and not (cast(:held as boolean) and exists (select from host_batches h where h.session_uid = s.session_uid and h.state = 'open'))
  );
