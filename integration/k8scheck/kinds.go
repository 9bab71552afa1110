package main

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kinds are the types by which objects are decoded, by version and kind.
var kinds = map[string]func() any{
	"v1 ConfigMap":      func() any { return &corev1.ConfigMap{} },
	"v1 Namespace":      func() any { return &corev1.Namespace{} },
	"v1 Secret":         func() any { return &corev1.Secret{} },
	"v1 Service":        func() any { return &corev1.Service{} },
	"v1 ServiceAccount": func() any { return &corev1.ServiceAccount{} },

	"apps/v1 Deployment":                     func() any { return &appsv1.Deployment{} },
	"apps/v1 StatefulSet":                    func() any { return &appsv1.StatefulSet{} },
	"autoscaling/v2 HorizontalPodAutoscaler": func() any { return &autoscalingv2.HorizontalPodAutoscaler{} },
	"batch/v1 Job":                           func() any { return &batchv1.Job{} },
	"networking.k8s.io/v1 NetworkPolicy":     func() any { return &networkingv1.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":          func() any { return &policyv1.PodDisruptionBudget{} },

	"kafka.strimzi.io/v1 KafkaTopic":          func() any { return &kafkaTopic{} },
	"kafka.strimzi.io/v1 KafkaUser":           func() any { return &kafkaUser{} },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return &podMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return &prometheusRule{} },
}

// Of the kinds of Strimzi and of the Prometheus operator, what we use: their own types would bring all of their operators along.

type kafkaTopic struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		TopicName  string            `json:"topicName"`
		Partitions int32             `json:"partitions"`
		Replicas   int32             `json:"replicas"`
		Config     map[string]string `json:"config"`
	} `json:"spec"`
}

type kafkaUser struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
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
	} `json:"spec"`
}

type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
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
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
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
	} `json:"spec"`
}
