-- name: usage_since(tenant, principal, since)^
-- What the model requests of a principal's sessions used since a moment.
select coalesce(sum(input_tokens), 0)::bigint as input_tokens, coalesce(sum(output_tokens), 0)::bigint as output_tokens,
  count(*)::integer as requests, sum(cost_usd) as cost_usd
from usage_ledger where tenant = :tenant and principal is not distinct from :principal::text and at >= :since;
