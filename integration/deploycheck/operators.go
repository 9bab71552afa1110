package main

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// operatorKinds are the kinds of Strimzi and of the Prometheus operator, by version and kind, with the fields that
// kudos uses: the original types would pull in the whole operators as dependencies.
var operatorKinds = map[string]func() any{
	"kafka.strimzi.io/v1 KafkaTopic":          custom[kafkaTopic],
	"kafka.strimzi.io/v1 KafkaUser":           custom[kafkaUser],
	"monitoring.coreos.com/v1 PodMonitor":     custom[podMonitor],
	"monitoring.coreos.com/v1 PrometheusRule": custom[prometheusRule],
}

func custom[Spec any]() any {
	return &struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              Spec `json:"spec"`
	}{}
}

type kafkaTopic struct {
	TopicName  string            `json:"topicName"`
	Partitions int32             `json:"partitions"`
	Replicas   int32             `json:"replicas"`
	Config     map[string]string `json:"config"`
}

type kafkaUser struct {
	Authentication struct {
		Type string `json:"type"`
	} `json:"authentication"`
	Authorization struct {
		Type string `json:"type"`
		ACLs []struct {
			Type     string `json:"type"`
			Resource struct {
				Type        string `json:"type"`
				Name        string `json:"name"`
				PatternType string `json:"patternType"`
			} `json:"resource"`
			Operations []string `json:"operations"`
			Host       string   `json:"host"`
		} `json:"acls"`
	} `json:"authorization"`
}

type podMonitor struct {
	Selector            metav1.LabelSelector `json:"selector"`
	PodMetricsEndpoints []struct {
		Port        string `json:"port"`
		Path        string `json:"path"`
		Interval    string `json:"interval"`
		Relabelings []struct {
			SourceLabels []string `json:"sourceLabels"`
			TargetLabel  string   `json:"targetLabel"`
		} `json:"relabelings"`
	} `json:"podMetricsEndpoints"`
}

type prometheusRule struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}
