-- What the store's container does once, when its volume is new. The aggregator owns the database; the page may
-- only read it. The passwords are in files, so that no process shows them.
\set aggregator `cat /run/secrets/aggregator_password`
\set page `cat /run/secrets/page_password`
CREATE ROLE hushmote LOGIN PASSWORD :'aggregator';
CREATE ROLE page LOGIN PASSWORD :'page';
ALTER ROLE page SET default_transaction_read_only = on;
CREATE DATABASE hushmote OWNER hushmote ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE hushmote FROM PUBLIC;
GRANT CONNECT ON DATABASE hushmote TO page;
\connect hushmote
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO page;
ALTER DEFAULT PRIVILEGES FOR ROLE hushmote GRANT SELECT ON TABLES TO page;
