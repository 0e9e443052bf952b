-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION core.raise_lock_busy() RETURNS text
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    RAISE EXCEPTION 'lock_busy'
        USING ERRCODE = 'BU002',
              DETAIL = 'Another transaction holds a declared lock: what was handed to the opening must not run.',
              HINT = 'lockorder opens again without it, and sends it once the locks are held.';
END
$$;
COMMENT ON FUNCTION core.raise_lock_busy() IS 'Raises BU002. It stands between an opening that found a lock busy and the statements handed to it, so that none of them runs.';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP FUNCTION core.raise_lock_busy();
-- +goose StatementEnd
