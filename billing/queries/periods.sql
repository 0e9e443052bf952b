-- name: SupersedePeriods :execrows
-- Stripe shows this period as the current one: none that begins later stands.
UPDATE stripe.subscription_periods SET superseded_at = @at::timestamptz
WHERE subscription_id = @subscription_id AND item_id = ANY (@items::text[]) AND superseded_at IS NULL
  AND lower(period) > @period_start::timestamptz;

-- name: TruncatePeriods :execrows
UPDATE stripe.subscription_periods SET period = tstzrange(lower(period), @period_start::timestamptz)
WHERE subscription_id = @subscription_id AND item_id = ANY (@items::text[]) AND superseded_at IS NULL
  AND lower(period) < @period_start::timestamptz AND upper(period) > @period_start::timestamptz;

-- name: ResizePeriods :execrows
UPDATE stripe.subscription_periods SET period = tstzrange(lower(period), @period_end::timestamptz)
WHERE subscription_id = @subscription_id AND item_id = ANY (@items::text[]) AND superseded_at IS NULL
  AND lower(period) = @period_start::timestamptz AND upper(period) <> @period_end::timestamptz;

-- name: AddPeriods :execrows
INSERT INTO stripe.subscription_periods (subscription_id, item_id, period, recorded_at)
SELECT @subscription_id, w.item_id, tstzrange(@period_start::timestamptz, @period_end::timestamptz), @at::timestamptz
FROM (SELECT unnest(@items::text[]) AS item_id) w
WHERE NOT EXISTS (SELECT FROM stripe.subscription_periods p
                  WHERE p.subscription_id = @subscription_id AND p.item_id = w.item_id AND p.superseded_at IS NULL
                    AND lower(p.period) = @period_start::timestamptz);

-- name: ReadPeriods :many
SELECT item_id, lower(period)::timestamptz AS period_start, upper(period)::timestamptz AS period_end
FROM stripe.subscription_periods
WHERE subscription_id = @subscription_id AND superseded_at IS NULL
ORDER BY item_id, lower(period);
