CREATE TABLE public.katib_schema_versions (
    room character varying(63) NOT NULL,
    version integer NOT NULL
);
CREATE TABLE public.observation_log_access (
    trial_name character varying(255) NOT NULL,
    namespace character varying(63) NOT NULL,
    reports_without_token boolean NOT NULL,
    reads_without_token boolean NOT NULL,
    has_ended boolean DEFAULT false NOT NULL
);
CREATE TABLE public.observation_log_extremes (
    trial_name character varying(255) NOT NULL,
    metric_name character varying(255) NOT NULL,
    low double precision NOT NULL,
    low_value text NOT NULL,
    high double precision NOT NULL,
    high_value text NOT NULL
);
CREATE TABLE public.observation_log_reporters (
    trial_name character varying(255) NOT NULL,
    reporter character varying(63) NOT NULL,
    stored_to bigint NOT NULL
);
CREATE TABLE public.observation_logs (
    trial_name character varying(255) NOT NULL,
    id integer NOT NULL,
    "time" timestamp(6) without time zone,
    metric_name character varying(255) NOT NULL,
    value text NOT NULL,
    step bigint DEFAULT '-1'::bigint NOT NULL
);
CREATE SEQUENCE public.observation_logs_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.observation_logs_id_seq OWNED BY public.observation_logs.id;
ALTER TABLE ONLY public.observation_logs ALTER COLUMN id SET DEFAULT nextval('public.observation_logs_id_seq'::regclass);
INSERT INTO public.katib_schema_versions VALUES ('observation-log', 5);
INSERT INTO public.observation_log_extremes VALUES ('ended-w62b66pb', 'loss', 0.7779, '0.7779', 1.4446, '1.4446');
INSERT INTO public.observation_log_extremes VALUES ('ended-wqclm9qn', 'loss', 0.4823, '0.4823', 1.1489, '1.1489');
INSERT INTO public.observation_log_extremes VALUES ('ended-4h652szx', 'loss', 0.3494, '0.3494', 1.0161, '1.0161');
INSERT INTO public.observation_log_extremes VALUES ('ended-wc7gm77m', 'loss', 0.4257, '0.4257', 1.0924, '1.0924');
INSERT INTO public.observation_log_extremes VALUES ('ended-m9k9sv9z', 'loss', 0.3737, '0.3737', 1.0404, '1.0404');
INSERT INTO public.observation_log_extremes VALUES ('ended-d555rqnw', 'loss', 0.3679, '0.3679', 1.0345, '1.0345');
INSERT INTO public.observation_log_extremes VALUES ('ended-gfjcts84', 'loss', 1.3792, '1.3792', 1.3792, '1.3792');
INSERT INTO public.observation_log_extremes VALUES ('ended-77hgqp88', 'loss', 1.1141, '1.1141', 1.1141, '1.1141');
INSERT INTO public.observation_log_extremes VALUES ('failed-dlx8h2r9', 'loss', 0.4823, '0.4823', 1.1489, '1.1489');
INSERT INTO public.observation_log_extremes VALUES ('failed-h27x8lcn', 'loss', 0.7779, '0.7779', 1.4446, '1.4446');
INSERT INTO public.observation_log_extremes VALUES ('told-wkh5wrlm', 'acc', 0.1, '0.1', 0.75, '0.75');
INSERT INTO public.observation_log_extremes VALUES ('told-wkh5wrlm', 'size', 3, '3.0', 3, '3.0');
INSERT INTO public.observation_log_extremes VALUES ('told-nbcm2699', 'acc', 0.3, '0.3', 0.3, '0.3');
INSERT INTO public.observation_log_extremes VALUES ('cut-7wzvcdbp', 'loss', 0.3979, '0.3979', 1.0645, '1.0645');
INSERT INTO public.observation_log_extremes VALUES ('cut-bz6nl6kv', 'loss', 0.3558, '0.3558', 1.0225, '1.0225');
INSERT INTO public.observation_log_extremes VALUES ('held-gwxqkllq', 'loss', 0.3678, '0.3678', 1.0345, '1.0345');
INSERT INTO public.observation_log_extremes VALUES ('held-twq4rx4l', 'loss', 0.4634, '0.4634', 1.1301, '1.1301');
INSERT INTO public.observation_log_extremes VALUES ('cut-2r9pqzch', 'loss', 0.883, '0.8830', 1.383, '1.3830');
INSERT INTO public.observation_log_extremes VALUES ('cut-c7kc9x7h', 'loss', 0.7688, '0.7688', 1.2688, '1.2688');
INSERT INTO public.observation_log_extremes VALUES ('held-hmfg9n2k', 'loss', 1.0014, '1.0014', 1.0014, '1.0014');
INSERT INTO public.observation_logs VALUES ('ended-w62b66pb', 1, '2026-11-29 01:56:32.898498', 'loss', '1.4446', -1);
INSERT INTO public.observation_logs VALUES ('ended-w62b66pb', 2, '2026-11-29 01:56:33.599364', 'loss', '0.9446', -1);
INSERT INTO public.observation_logs VALUES ('ended-w62b66pb', 3, '2026-11-29 01:56:34.30338', 'loss', '0.7779', -1);
INSERT INTO public.observation_logs VALUES ('ended-wqclm9qn', 4, '2026-11-29 01:56:32.906583', 'loss', '1.1489', -1);
INSERT INTO public.observation_logs VALUES ('ended-wqclm9qn', 5, '2026-11-29 01:56:33.60699', 'loss', '0.6489', -1);
INSERT INTO public.observation_logs VALUES ('ended-wqclm9qn', 6, '2026-11-29 01:56:34.311244', 'loss', '0.4823', -1);
INSERT INTO public.observation_logs VALUES ('ended-4h652szx', 7, '2026-11-29 01:56:35.084176', 'loss', '1.0161', -1);
INSERT INTO public.observation_logs VALUES ('ended-4h652szx', 8, '2026-11-29 01:56:35.784604', 'loss', '0.5161', -1);
INSERT INTO public.observation_logs VALUES ('ended-4h652szx', 9, '2026-11-29 01:56:36.487274', 'loss', '0.3494', -1);
INSERT INTO public.observation_logs VALUES ('ended-wc7gm77m', 10, '2026-11-29 01:56:35.088287', 'loss', '1.0924', -1);
INSERT INTO public.observation_logs VALUES ('ended-wc7gm77m', 11, '2026-11-29 01:56:35.788469', 'loss', '0.5924', -1);
INSERT INTO public.observation_logs VALUES ('ended-wc7gm77m', 12, '2026-11-29 01:56:36.489453', 'loss', '0.4257', -1);
INSERT INTO public.observation_logs VALUES ('ended-m9k9sv9z', 13, '2026-11-29 01:56:37.240087', 'loss', '1.0404', -1);
INSERT INTO public.observation_logs VALUES ('ended-m9k9sv9z', 14, '2026-11-29 01:56:37.940461', 'loss', '0.5404', -1);
INSERT INTO public.observation_logs VALUES ('ended-m9k9sv9z', 15, '2026-11-29 01:56:38.643434', 'loss', '0.3737', -1);
INSERT INTO public.observation_logs VALUES ('ended-d555rqnw', 16, '2026-11-29 01:56:37.240299', 'loss', '1.0345', -1);
INSERT INTO public.observation_logs VALUES ('ended-d555rqnw', 17, '2026-11-29 01:56:37.940275', 'loss', '0.5345', -1);
INSERT INTO public.observation_logs VALUES ('ended-d555rqnw', 18, '2026-11-29 01:56:38.643191', 'loss', '0.3679', -1);
INSERT INTO public.observation_logs VALUES ('ended-gfjcts84', 19, '2026-11-29 01:56:39.395504', 'loss', '1.3792', -1);
INSERT INTO public.observation_logs VALUES ('ended-77hgqp88', 20, '2026-11-29 01:56:39.395958', 'loss', '1.1141', -1);
INSERT INTO public.observation_logs VALUES ('failed-dlx8h2r9', 21, '2026-11-29 01:56:42.85363', 'loss', '1.1489', -1);
INSERT INTO public.observation_logs VALUES ('failed-dlx8h2r9', 22, '2026-11-29 01:56:43.153798', 'loss', '0.6489', -1);
INSERT INTO public.observation_logs VALUES ('failed-dlx8h2r9', 23, '2026-11-29 01:56:43.457729', 'loss', '0.4823', -1);
INSERT INTO public.observation_logs VALUES ('failed-h27x8lcn', 24, '2026-11-29 01:56:42.863299', 'loss', '1.4446', -1);
INSERT INTO public.observation_logs VALUES ('failed-h27x8lcn', 25, '2026-11-29 01:56:43.163564', 'loss', '0.9446', -1);
INSERT INTO public.observation_logs VALUES ('failed-h27x8lcn', 26, '2026-11-29 01:56:43.479541', 'loss', '0.7779', -1);
INSERT INTO public.observation_logs VALUES ('told-wkh5wrlm', 27, '2026-11-29 01:56:45.763168', 'acc', '0.1', 1);
INSERT INTO public.observation_logs VALUES ('told-wkh5wrlm', 28, '2026-11-29 01:56:45.773831', 'acc', '0.5', 2);
INSERT INTO public.observation_logs VALUES ('told-wkh5wrlm', 29, '2026-11-29 01:56:45.779186', 'acc', '0.75', 2);
INSERT INTO public.observation_logs VALUES ('told-wkh5wrlm', 30, '2026-11-29 01:56:45.779186', 'size', '3.0', 2);
INSERT INTO public.observation_logs VALUES ('told-nbcm2699', 31, '2026-11-29 01:56:45.818171', 'acc', '0.3', 1);
INSERT INTO public.observation_logs VALUES ('cut-7wzvcdbp', 32, '2026-11-29 01:56:51.646786', 'loss', '1.0645', -1);
INSERT INTO public.observation_logs VALUES ('cut-7wzvcdbp', 33, '2026-11-29 01:56:53.647478', 'loss', '0.5645', -1);
INSERT INTO public.observation_logs VALUES ('cut-7wzvcdbp', 34, '2026-11-29 01:56:55.647721', 'loss', '0.3979', -1);
INSERT INTO public.observation_logs VALUES ('cut-bz6nl6kv', 35, '2026-11-29 01:56:51.648881', 'loss', '1.0225', -1);
INSERT INTO public.observation_logs VALUES ('cut-bz6nl6kv', 36, '2026-11-29 01:56:53.649015', 'loss', '0.5225', -1);
INSERT INTO public.observation_logs VALUES ('cut-bz6nl6kv', 37, '2026-11-29 01:56:55.649214', 'loss', '0.3558', -1);
INSERT INTO public.observation_logs VALUES ('held-gwxqkllq', 38, '2026-11-29 01:56:54.428519', 'loss', '1.0345', -1);
INSERT INTO public.observation_logs VALUES ('held-gwxqkllq', 39, '2026-11-29 01:56:56.428773', 'loss', '0.5345', -1);
INSERT INTO public.observation_logs VALUES ('held-gwxqkllq', 40, '2026-11-29 01:56:58.458424', 'loss', '0.3678', -1);
INSERT INTO public.observation_logs VALUES ('held-twq4rx4l', 41, '2026-11-29 01:56:54.431189', 'loss', '1.1301', -1);
INSERT INTO public.observation_logs VALUES ('held-twq4rx4l', 42, '2026-11-29 01:56:56.431752', 'loss', '0.6301', -1);
INSERT INTO public.observation_logs VALUES ('held-twq4rx4l', 43, '2026-11-29 01:56:58.432987', 'loss', '0.4634', -1);
INSERT INTO public.observation_logs VALUES ('cut-2r9pqzch', 44, '2026-11-29 01:56:57.743477', 'loss', '1.3830', -1);
INSERT INTO public.observation_logs VALUES ('cut-2r9pqzch', 45, '2026-11-29 01:56:59.744334', 'loss', '0.8830', -1);
INSERT INTO public.observation_logs VALUES ('cut-c7kc9x7h', 46, '2026-11-29 01:56:57.747332', 'loss', '1.2688', -1);
INSERT INTO public.observation_logs VALUES ('cut-c7kc9x7h', 47, '2026-11-29 01:56:59.747423', 'loss', '0.7688', -1);
INSERT INTO public.observation_logs VALUES ('held-hmfg9n2k', 48, '2026-11-29 01:57:00.581516', 'loss', '1.0014', -1);
SELECT pg_catalog.setval('public.observation_logs_id_seq', 48, true);
ALTER TABLE ONLY public.katib_schema_versions
    ADD CONSTRAINT katib_schema_versions_pkey PRIMARY KEY (room);
ALTER TABLE ONLY public.observation_log_access
    ADD CONSTRAINT observation_log_access_pkey PRIMARY KEY (trial_name);
ALTER TABLE ONLY public.observation_log_extremes
    ADD CONSTRAINT observation_log_extremes_pkey PRIMARY KEY (trial_name, metric_name);
ALTER TABLE ONLY public.observation_log_reporters
    ADD CONSTRAINT observation_log_reporters_pkey PRIMARY KEY (trial_name, reporter);
ALTER TABLE ONLY public.observation_logs
    ADD CONSTRAINT observation_logs_pkey PRIMARY KEY (id);
CREATE INDEX observation_log_extremes_by_high ON public.observation_log_extremes USING btree (metric_name, high);
CREATE INDEX observation_log_extremes_by_low ON public.observation_log_extremes USING btree (metric_name, low);
CREATE INDEX observation_logs_curves ON public.observation_logs USING btree (trial_name, metric_name, step, "time", id);
