-- Schema version 4 as Hushmote at 5f7c1e9 made it on PostgreSQL.
CREATE TABLE schema_version (
	version INTEGER NOT NULL
);
CREATE TABLE fleet (
	name VARCHAR(32) NOT NULL,
	keyed BOOLEAN NOT NULL,
	listed BOOLEAN DEFAULT false NOT NULL,
	serial BIGINT DEFAULT '0' NOT NULL,
	master_check VARCHAR(16),
	PRIMARY KEY (name)
);
CREATE TABLE dedupe (
	fleet VARCHAR(32) NOT NULL,
	experiment VARCHAR(32) NOT NULL,
	device VARCHAR(32) NOT NULL,
	numbers TEXT NOT NULL,
	accepted BIGINT NOT NULL,
	PRIMARY KEY (fleet, experiment, device)
);
CREATE TABLE reject (
	fleet VARCHAR(32) NOT NULL,
	reason VARCHAR(32) NOT NULL,
	count BIGINT NOT NULL,
	PRIMARY KEY (fleet, reason)
);
CREATE TABLE device (
	fleet VARCHAR(32) NOT NULL,
	device VARCHAR(32) NOT NULL,
	state VARCHAR(8) NOT NULL CHECK (state IN ('allowed', 'revoked')),
	PRIMARY KEY (fleet, device),
	FOREIGN KEY(fleet) REFERENCES fleet (name)
);
CREATE TABLE experiment (
	id SERIAL NOT NULL,
	fleet VARCHAR(32) NOT NULL,
	name VARCHAR(32) NOT NULL,
	digest BYTEA NOT NULL,
	sha256 BYTEA NOT NULL,
	payload BYTEA NOT NULL,
	current BOOLEAN NOT NULL,
	expires VARCHAR(10),
	first_serial BIGINT DEFAULT '0' NOT NULL,
	serial BIGINT DEFAULT '0' NOT NULL,
	counted_until VARCHAR(10),
	unit TEXT DEFAULT '' NOT NULL,
	purpose TEXT DEFAULT '' NOT NULL,
	owner TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (fleet, digest),
	FOREIGN KEY(fleet) REFERENCES fleet (name)
);
CREATE TABLE histogram (
	experiment INTEGER NOT NULL,
	"window" VARCHAR(13) NOT NULL,
	code INTEGER NOT NULL,
	count BIGINT NOT NULL,
	PRIMARY KEY (experiment, "window", code),
	FOREIGN KEY(experiment) REFERENCES experiment (id)
);
INSERT INTO schema_version VALUES (4);
