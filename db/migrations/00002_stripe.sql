-- +goose Up
-- +goose StatementBegin
CREATE SCHEMA stripe;
COMMENT ON SCHEMA stripe IS 'A mirror of what Stripe showed, read by id, and how it maps to what is held here.';

CREATE TABLE stripe.customers (
    id              text COLLATE "C" PRIMARY KEY CHECK (id ~ '^cus_[A-Za-z0-9_]+$'),
    organization_id uuid NOT NULL REFERENCES core.organizations,
    linked_at       timestamptz NOT NULL,
    linked_by       text NOT NULL CHECK (linked_by IN ('operator', 'checkout'))
);
COMMENT ON TABLE stripe.customers IS 'Which organisation a Stripe customer pays for. A link, once made, stays. Lock class: customer.';
CREATE INDEX customers_by_organization ON stripe.customers (organization_id);

CREATE TABLE stripe.product_mappings (
    stripe_product_id text COLLATE "C" PRIMARY KEY CHECK (stripe_product_id ~ '^[A-Za-z0-9_.-]+$'),
    product_id        uuid NOT NULL REFERENCES core.products
);
COMMENT ON TABLE stripe.product_mappings IS 'What is held by who pays any price of a Stripe product. Written under the exclusive rendezvous. Lock class: materialization.';
CREATE INDEX product_mappings_by_product ON stripe.product_mappings (product_id);

CREATE TABLE stripe.price_mappings (
    stripe_price_id text COLLATE "C" PRIMARY KEY CHECK (stripe_price_id ~ '^[A-Za-z0-9_.-]+$'),
    product_id      uuid NOT NULL REFERENCES core.products
);
COMMENT ON TABLE stripe.price_mappings IS 'What is held by who pays a price; it goes before the mapping of the price''s product. Written under the exclusive rendezvous. Lock class: materialization.';
CREATE INDEX price_mappings_by_product ON stripe.price_mappings (product_id);

CREATE TABLE stripe.subscriptions (
    id                   text COLLATE "C" PRIMARY KEY CHECK (id ~ '^sub_[A-Za-z0-9_]+$'),
    version              bigint NOT NULL CHECK (version > 0),
    customer_id          text COLLATE "C",
    status               text CHECK (status IN ('incomplete', 'incomplete_expired', 'trialing', 'active', 'past_due', 'canceled', 'unpaid', 'paused')),
    current_period_start timestamptz,
    current_period_end   timestamptz,
    trial_end            timestamptz,
    cancel_at            timestamptz,
    cancel_at_period_end boolean NOT NULL DEFAULT false,
    canceled_at          timestamptz,
    ended_at             timestamptz,
    stripe_created_at    timestamptz,
    reconciled_at        timestamptz NOT NULL,
    CHECK ((status IS NULL) = (customer_id IS NULL)),
    CHECK ((status IS NULL) = (stripe_created_at IS NULL)),
    CHECK (current_period_end >= current_period_start)
);
COMMENT ON TABLE stripe.subscriptions IS 'The last read of each subscription. Status is null until Stripe has shown it. Lock class: subscription.';
COMMENT ON COLUMN stripe.subscriptions.version IS 'Raised by every reconcile that held the key, also by one that changed nothing: a reader that noted an older one reads again.';
CREATE INDEX subscriptions_by_customer ON stripe.subscriptions (customer_id);

CREATE TABLE stripe.subscription_items (
    id                text COLLATE "C" PRIMARY KEY CHECK (id <> ''),
    subscription_id   text COLLATE "C" NOT NULL REFERENCES stripe.subscriptions,
    price_id          text COLLATE "C" NOT NULL,
    stripe_product_id text COLLATE "C" NOT NULL,
    quantity          bigint NOT NULL CHECK (quantity >= 0),
    removed_at        timestamptz,
    UNIQUE (subscription_id, id)
);
COMMENT ON TABLE stripe.subscription_items IS 'The items of the last read; one that Stripe no longer shows is marked removed. Lock class: subscription.';
CREATE INDEX subscription_items_by_price ON stripe.subscription_items (price_id) WHERE removed_at IS NULL;
CREATE INDEX subscription_items_by_product ON stripe.subscription_items (stripe_product_id) WHERE removed_at IS NULL;

CREATE TABLE stripe.subscription_periods (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id text COLLATE "C" NOT NULL,
    item_id         text COLLATE "C" NOT NULL,
    period          tstzrange NOT NULL CHECK (NOT isempty(period) AND lower_inc(period) AND NOT upper_inc(period) AND NOT lower_inf(period) AND NOT upper_inf(period)),
    recorded_at     timestamptz NOT NULL,
    superseded_at   timestamptz,
    FOREIGN KEY (subscription_id, item_id) REFERENCES stripe.subscription_items (subscription_id, id),
    EXCLUDE USING gist (subscription_id WITH =, item_id WITH =, period WITH &&) WHERE (superseded_at IS NULL)
);
COMMENT ON TABLE stripe.subscription_periods IS 'Paid periods of each item; two that stand never overlap. A period overtaken whole is kept, marked superseded. Lock class: subscription.';

CREATE TABLE stripe.subscription_events (
    subscription_id text COLLATE "C" NOT NULL REFERENCES stripe.subscriptions,
    event_id        text COLLATE "C" NOT NULL CHECK (event_id <> ''),
    event_type      text NOT NULL,
    first_seen_at   timestamptz NOT NULL,
    version         bigint NOT NULL,
    PRIMARY KEY (subscription_id, event_id)
);
COMMENT ON TABLE stripe.subscription_events IS 'Which events led to which reconcile, to explain afterwards. Lock class: subscription.';

CREATE TABLE stripe.parked_work (
    kind                 text NOT NULL CHECK (kind IN ('subscription', 'checkout')),
    object_id            text COLLATE "C" NOT NULL CHECK (object_id <> ''),
    reason               text NOT NULL CHECK (reason IN ('unknown_customer', 'unmapped_price', 'not_found', 'livemode_mismatch', 'unknown_organization', 'conflicting_link', 'failed')),
    detail               text NOT NULL CHECK (detail <> ''),
    subscription_id      text COLLATE "C" NOT NULL,
    waiting_customer     text COLLATE "C",
    waiting_prices       text[] NOT NULL DEFAULT '{}',
    waiting_products     text[] NOT NULL DEFAULT '{}',
    waiting_organization text COLLATE "C",
    attempts             integer NOT NULL DEFAULT 1 CHECK (attempts > 0),
    parked_at            timestamptz NOT NULL,
    last_tried_at        timestamptz NOT NULL,
    retry_requested_at   timestamptz,
    resolved_at          timestamptz,
    PRIMARY KEY (kind, object_id),
    CHECK (cardinality(waiting_prices) = cardinality(waiting_products))
);
COMMENT ON TABLE stripe.parked_work IS 'What could not be done, why, and what would free it. Lock class: parked-work.';
COMMENT ON COLUMN stripe.parked_work.waiting_organization IS 'The organisation that a checkout names and that does not exist yet: a slug or an id.';
COMMENT ON COLUMN stripe.parked_work.subscription_id IS 'The subscription to reconcile when it is tried again.';
CREATE INDEX parked_work_open ON stripe.parked_work (kind, object_id) WHERE resolved_at IS NULL;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP SCHEMA stripe CASCADE;
-- +goose StatementEnd
