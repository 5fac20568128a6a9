BEGIN TRANSACTION;
CREATE TABLE events (
	id INTEGER NOT NULL, 
	kind VARCHAR(63) NOT NULL, 
	namespace VARCHAR(253) NOT NULL, 
	name VARCHAR(253) NOT NULL, 
	experiment VARCHAR(253) NOT NULL, 
	warning BOOLEAN NOT NULL, 
	reason VARCHAR(255) NOT NULL, 
	message TEXT NOT NULL, 
	first_time VARCHAR(40) NOT NULL, 
	last_time VARCHAR(40) NOT NULL, 
	times INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "events" VALUES(1,'Experiment','default','old','old',0,'ExperimentCreated','Experiment is created','2026-11-22T12:52:35.021174+00:00','2026-11-22T12:52:35.021174+00:00',1);
INSERT INTO "events" VALUES(2,'Trial','default','old-qpbkh7x6','old',0,'JobCreated','Job old-qpbkh7x6 has been created','2026-11-22T12:52:36.207496+00:00','2026-11-22T12:52:36.207496+00:00',1);
INSERT INTO "events" VALUES(3,'Trial','default','old-qpbkh7x6','old',0,'JobRunning','Job old-qpbkh7x6 is running','2026-11-22T12:52:36.207552+00:00','2026-11-22T12:52:36.207552+00:00',1);
INSERT INTO "events" VALUES(4,'Trial','default','old-qpbkh7x6','old',0,'JobSucceeded','Job old-qpbkh7x6 has succeeded','2026-11-22T12:52:36.228694+00:00','2026-11-22T12:52:36.228694+00:00',1);
INSERT INTO "events" VALUES(5,'Trial','default','old-qpbkh7x6','old',0,'JobDeleted','Job old-qpbkh7x6 has been deleted','2026-11-22T12:52:36.231442+00:00','2026-11-22T12:52:36.231442+00:00',1);
INSERT INTO "events" VALUES(6,'Experiment','default','old','old',0,'ExperimentRunning','Experiment is running','2026-11-22T12:52:36.235943+00:00','2026-11-22T12:52:36.235943+00:00',1);
INSERT INTO "events" VALUES(7,'Trial','default','old-z7pbpmb7','old',0,'JobCreated','Job old-z7pbpmb7 has been created','2026-11-22T12:52:36.246790+00:00','2026-11-22T12:52:36.246790+00:00',1);
INSERT INTO "events" VALUES(8,'Trial','default','old-z7pbpmb7','old',0,'JobRunning','Job old-z7pbpmb7 is running','2026-11-22T12:52:36.246847+00:00','2026-11-22T12:52:36.246847+00:00',1);
INSERT INTO "events" VALUES(9,'Trial','default','old-z7pbpmb7','old',0,'JobSucceeded','Job old-z7pbpmb7 has succeeded','2026-11-22T12:52:36.276085+00:00','2026-11-22T12:52:36.276085+00:00',1);
INSERT INTO "events" VALUES(10,'Trial','default','old-z7pbpmb7','old',0,'JobDeleted','Job old-z7pbpmb7 has been deleted','2026-11-22T12:52:36.276929+00:00','2026-11-22T12:52:36.276929+00:00',1);
INSERT INTO "events" VALUES(11,'Experiment','default','old','old',0,'ExperimentMaxTrialsReached','Experiment has succeeded because max trial count has reached','2026-11-22T12:52:36.280695+00:00','2026-11-22T12:52:36.280695+00:00',1);
CREATE TABLE object_labels (
	label TEXT NOT NULL, 
	value TEXT NOT NULL, 
	object_id INTEGER NOT NULL, 
	PRIMARY KEY (label, value, object_id), 
	FOREIGN KEY(object_id) REFERENCES objects (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "object_labels" VALUES('katib.kubeflow.org/experiment','old',3);
INSERT INTO "object_labels" VALUES('katib.kubeflow.org/experiment','old',5);
CREATE TABLE object_owners (
	owner_uid TEXT NOT NULL, 
	object_id INTEGER NOT NULL, 
	PRIMARY KEY (owner_uid, object_id), 
	FOREIGN KEY(object_id) REFERENCES objects (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "object_owners" VALUES('64396c3a-2005-4355-9a19-de9173a2073c',2);
INSERT INTO "object_owners" VALUES('64396c3a-2005-4355-9a19-de9173a2073c',3);
INSERT INTO "object_owners" VALUES('64396c3a-2005-4355-9a19-de9173a2073c',5);
CREATE TABLE object_revision (
	id INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "object_revision" VALUES(1,26);
CREATE TABLE objects (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	api_version TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	namespace TEXT NOT NULL, 
	name TEXT NOT NULL, 
	uid TEXT NOT NULL, 
	body TEXT NOT NULL, 
	UNIQUE (kind, api_version, namespace, name), 
	UNIQUE (uid)
);
INSERT INTO "objects" VALUES(1,'kubeflow.org/v1beta1','Experiment','default','old','64396c3a-2005-4355-9a19-de9173a2073c','{"apiVersion":"kubeflow.org/v1beta1","kind":"Experiment","metadata":{"name":"old","namespace":"default","annotations":{"katib.kubeflow.org/workspace":"/home/user"},"finalizers":["update-prometheus-metrics"],"uid":"64396c3a-2005-4355-9a19-de9173a2073c","creationTimestamp":"2026-11-22T12:52:34Z","resourceVersion":"26","generation":1},"spec":{"parameters":[{"name":"x","parameterType":"double","feasibleSpace":{"max":"1","min":"0","distribution":"uniform"}}],"objective":{"type":"minimize","objectiveMetricName":"loss","metricStrategies":[{"name":"loss","value":"min"}]},"algorithm":{"algorithmName":"random"},"trialTemplate":{"trialSpec":{"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"none","command":["sh","-c","echo loss=${trialParameters.x}"]}]}}}},"trialParameters":[{"name":"x","reference":"x"}],"primaryContainerName":"main","successCondition":"status.conditions.#(type==\"Complete\")#|#(status==\"True\")#","failureCondition":"status.conditions.#(type==\"Failed\")#|#(status==\"True\")#"},"parallelTrialCount":1,"maxTrialCount":2,"metricsCollectorSpec":{"collector":{"kind":"StdOut"}},"resumePolicy":"Never"},"status":{"startTime":"2026-11-22T12:52:34Z","completionTime":"2026-11-22T12:52:36Z","conditions":[{"type":"Created","status":"True","reason":"ExperimentCreated","message":"Experiment is created","lastUpdateTime":"2026-11-22T12:52:34Z","lastTransitionTime":"2026-11-22T12:52:34Z"},{"type":"Running","status":"False","reason":"ExperimentRunning","message":"Experiment is running","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"},{"type":"Succeeded","status":"True","reason":"ExperimentMaxTrialsReached","message":"Experiment has succeeded because max trial count has reached","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"}],"currentOptimalTrial":{"bestTrialName":"old-z7pbpmb7","parameterAssignments":[{"name":"x","value":"0.2973395683522827"}],"observation":{"metrics":[{"name":"loss","min":"0.2973395683522827","max":"0.2973395683522827","latest":"0.2973395683522827"}]}},"succeededTrialList":["old-qpbkh7x6","old-z7pbpmb7"],"trials":2,"trialsSucceeded":2}}');
INSERT INTO "objects" VALUES(2,'kubeflow.org/v1beta1','Suggestion','default','old','5ef8fd02-8f2e-49cf-bcad-67b1c37c5d92','{"apiVersion":"kubeflow.org/v1beta1","kind":"Suggestion","metadata":{"name":"old","namespace":"default","annotations":{"katib.kubeflow.org/workspace":"/home/user"},"ownerReferences":[{"apiVersion":"kubeflow.org/v1beta1","kind":"Experiment","name":"old","uid":"64396c3a-2005-4355-9a19-de9173a2073c","controller":true,"blockOwnerDeletion":true}],"uid":"5ef8fd02-8f2e-49cf-bcad-67b1c37c5d92","creationTimestamp":"2026-11-22T12:52:34Z","resourceVersion":"25","generation":2},"spec":{"algorithm":{"algorithmName":"random"},"requests":2,"resumePolicy":"Never"},"status":{"suggestionCount":2,"suggestions":[{"name":"old-z7pbpmb7","parameterAssignments":[{"name":"x","value":"0.2973395683522827"}]}],"startTime":"2026-11-22T12:52:35Z","conditions":[{"type":"Created","status":"True","reason":"SuggestionCreated","message":"Suggestion is created","lastUpdateTime":"2026-11-22T12:52:35Z","lastTransitionTime":"2026-11-22T12:52:35Z"},{"type":"Running","status":"False","reason":"Suggestion is succeeded","message":"Suggestion is not running","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"},{"type":"DeploymentReady","status":"False","reason":"Suggestion is succeeded","message":"Deployment is not ready","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"},{"type":"Succeeded","status":"True","reason":"Experiment is succeeded","message":"Suggestion is succeeded, can''t be restarted","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"}]}}');
INSERT INTO "objects" VALUES(3,'kubeflow.org/v1beta1','Trial','default','old-qpbkh7x6','e20441a6-0e43-4aca-be44-599bb6275005','{"apiVersion":"kubeflow.org/v1beta1","kind":"Trial","metadata":{"name":"old-qpbkh7x6","namespace":"default","labels":{"katib.kubeflow.org/experiment":"old"},"ownerReferences":[{"apiVersion":"kubeflow.org/v1beta1","kind":"Experiment","name":"old","uid":"64396c3a-2005-4355-9a19-de9173a2073c","controller":true,"blockOwnerDeletion":true}],"finalizers":["clean-metrics-in-db"],"uid":"e20441a6-0e43-4aca-be44-599bb6275005","creationTimestamp":"2026-11-22T12:52:36Z","generation":1,"resourceVersion":"13"},"spec":{"objective":{"type":"minimize","objectiveMetricName":"loss","metricStrategies":[{"name":"loss","value":"min"}]},"parameterAssignments":[{"name":"x","value":"0.9555953605370416"}],"runSpec":{"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"none","command":["sh","-c","echo loss=0.9555953605370416"]}]}}},"metadata":{"name":"old-qpbkh7x6","namespace":"default"}},"metricsCollector":{"collector":{"kind":"StdOut"}},"primaryContainerName":"main","successCondition":"status.conditions.#(type==\"Complete\")#|#(status==\"True\")#","failureCondition":"status.conditions.#(type==\"Failed\")#|#(status==\"True\")#"},"status":{"startTime":"2026-11-22T12:52:36Z","completionTime":"2026-11-22T12:52:36Z","conditions":[{"type":"Created","status":"True","reason":"TrialCreated","message":"Trial is created","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"},{"type":"Running","status":"False","reason":"TrialRunning","message":"Trial is running","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"},{"type":"Succeeded","status":"True","reason":"TrialSucceeded","message":"Trial has succeeded. Job reason: CompletionsReached. Job message: the wanted number of pods succeeded","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"}],"observation":{"metrics":[{"name":"loss","min":"0.9555953605370416","max":"0.9555953605370416","latest":"0.9555953605370416"}]}}}');
INSERT INTO "objects" VALUES(5,'kubeflow.org/v1beta1','Trial','default','old-z7pbpmb7','fb95a252-a8e2-4293-a96d-1f342ae2ceb4','{"apiVersion":"kubeflow.org/v1beta1","kind":"Trial","metadata":{"name":"old-z7pbpmb7","namespace":"default","labels":{"katib.kubeflow.org/experiment":"old"},"ownerReferences":[{"apiVersion":"kubeflow.org/v1beta1","kind":"Experiment","name":"old","uid":"64396c3a-2005-4355-9a19-de9173a2073c","controller":true,"blockOwnerDeletion":true}],"finalizers":["clean-metrics-in-db"],"uid":"fb95a252-a8e2-4293-a96d-1f342ae2ceb4","creationTimestamp":"2026-11-22T12:52:36Z","generation":1,"resourceVersion":"23"},"spec":{"objective":{"type":"minimize","objectiveMetricName":"loss","metricStrategies":[{"name":"loss","value":"min"}]},"parameterAssignments":[{"name":"x","value":"0.2973395683522827"}],"runSpec":{"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"none","command":["sh","-c","echo loss=0.2973395683522827"]}]}}},"metadata":{"name":"old-z7pbpmb7","namespace":"default"}},"metricsCollector":{"collector":{"kind":"StdOut"}},"primaryContainerName":"main","successCondition":"status.conditions.#(type==\"Complete\")#|#(status==\"True\")#","failureCondition":"status.conditions.#(type==\"Failed\")#|#(status==\"True\")#"},"status":{"startTime":"2026-11-22T12:52:36Z","completionTime":"2026-11-22T12:52:36Z","conditions":[{"type":"Created","status":"True","reason":"TrialCreated","message":"Trial is created","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"},{"type":"Running","status":"False","reason":"TrialRunning","message":"Trial is running","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"},{"type":"Succeeded","status":"True","reason":"TrialSucceeded","message":"Trial has succeeded. Job reason: CompletionsReached. Job message: the wanted number of pods succeeded","lastUpdateTime":"2026-11-22T12:52:36Z","lastTransitionTime":"2026-11-22T12:52:36Z"}],"observation":{"metrics":[{"name":"loss","min":"0.2973395683522827","max":"0.2973395683522827","latest":"0.2973395683522827"}]}}}');
CREATE TABLE observation_log_access (
	trial_name VARCHAR(255) NOT NULL, 
	namespace VARCHAR(63) NOT NULL, 
	reports_without_token BOOLEAN NOT NULL, 
	reads_without_token BOOLEAN NOT NULL, 
	PRIMARY KEY (trial_name)
);
CREATE TABLE observation_log_version (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "observation_log_version" VALUES('0003');
CREATE TABLE observation_logs (
	trial_name VARCHAR(255) NOT NULL, 
	id INTEGER NOT NULL, 
	time DATETIME, 
	metric_name VARCHAR(255) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "observation_logs" VALUES('old-qpbkh7x6',1,'2026-11-22 12:52:36.218793','loss','0.9555953605370416');
INSERT INTO "observation_logs" VALUES('old-z7pbpmb7',2,'2026-11-22 12:52:36.269832','loss','0.2973395683522827');
CREATE TABLE schema_versions (room TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT;
INSERT INTO "schema_versions" VALUES('objects',1);
INSERT INTO "schema_versions" VALUES('events',1);
CREATE INDEX object_labels_by_object ON object_labels (object_id);
CREATE INDEX object_owners_by_object ON object_owners (object_id);
CREATE INDEX observation_logs_by_metric ON observation_logs (trial_name, metric_name, time, id);
CREATE UNIQUE INDEX events_identity ON events (namespace, experiment, kind, name, reason, message);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('objects',6);
COMMIT;
